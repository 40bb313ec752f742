"""VAMP: expert weights and KV cache as one pool of GPU memory, inside vLLM (arXiv 2609.13537)."""

__version__ = "0.1.0"
SUPPORTED_VLLM = "0.26.0"
