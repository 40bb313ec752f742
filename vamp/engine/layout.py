"""Geometry of the served model and its KV cache, read from vLLM's configuration."""

from __future__ import annotations

from typing import Any

from vamp.config import VampConfig
from vamp.errors import ConfigError, GeometryError
from vamp.memory.geometry import ExpertGeometry, KvGeometry, PoolPlan

EXPERT_COUNT_NAMES = ("num_experts", "num_local_experts", "n_routed_experts")


def expert_geometry(
    hf: Any, tp: int, *, dtype_bytes: int = 2, resident_layers: int = 1, page_bytes: int = 2 * 2**20
) -> ExpertGeometry:
    """Expert weights of one of `tp` ranks, from a Hugging Face text config.

    Under tensor parallelism every rank holds a slice of every expert: gate-and-up (2*I/tp, H) and down (H, I/tp).

    Raises:
        ConfigError: the model has no experts, or I does not divide by tp.
    """
    n_experts = next((n for n in (getattr(hf, name, None) for name in EXPERT_COUNT_NAMES) if n), None)
    if not n_experts:
        raise ConfigError(f"model {getattr(hf, 'model_type', '?')!r} has no routed experts; VAMP needs a MoE model")
    inter = getattr(hf, "moe_intermediate_size", None) or hf.intermediate_size
    if inter % tp:
        raise ConfigError(f"expert width {inter} does not divide by tensor parallel size {tp}; choose another size")
    down = hf.hidden_size * (inter // tp) * dtype_bytes
    return ExpertGeometry(
        n_layers=moe_layers(hf),
        n_shards=n_experts,
        tensor_bytes=(2 * down, down),
        resident_layers=resident_layers,
        page_bytes=page_bytes,
    )


def moe_layers(hf: Any) -> int:
    """Layers with routed experts: all, less the dense ones that the config names."""
    step = getattr(hf, "decoder_sparse_step", 1) or 1
    dense = set(getattr(hf, "mlp_only_layers", None) or ())
    first = getattr(hf, "first_k_dense_replace", 0) or 0
    return sum(1 for i in range(hf.num_hidden_layers) if i not in dense and (i + 1) % step == 0 and i >= first)


def kv_geometry(kv_cache_config: Any, *, page_bytes: int = 2 * 2**20) -> KvGeometry:
    """KV tensors that share a block id.

    Raises:
        GeometryError: groups with different pages, which 0.26.0 does not build for the models served here.
    """
    specs = [g.kv_cache_spec for g in kv_cache_config.kv_cache_groups]
    pages = {s.page_size_bytes for s in specs}
    if len(pages) != 1:
        raise GeometryError(f"KV groups have pages of {sorted(pages)} B; they must share one page size")
    n_tensors = len(kv_cache_config.kv_cache_tensors) or max(
        len(g.layer_names) for g in kv_cache_config.kv_cache_groups
    )
    return KvGeometry(pages.pop(), n_tensors, specs[0].block_size, page_bytes)


def served_experts(config: VampConfig, vllm_config: Any) -> ExpertGeometry:
    """Expert weights of one rank of this server."""
    model = vllm_config.model_config
    return expert_geometry(
        model.hf_text_config,
        vllm_config.parallel_config.tensor_parallel_size,
        dtype_bytes=_expert_dtype_bytes(vllm_config),
        resident_layers=config.resident_layers,
        page_bytes=config.vmm_page_bytes,
    )


def _expert_dtype_bytes(vllm_config: Any) -> int:
    """Of an element of the experts' weights, by what the checkpoint says; checked when they are moved in."""
    quantization = getattr(vllm_config, "quant_config", None)
    is_fp8 = quantization is not None and quantization.get_name() == "fp8"
    return 1 if is_fp8 else int(vllm_config.model_config.dtype.itemsize)


def pool_plan(config: VampConfig, vllm_config: Any, kv_cache_config: Any, base_blk: int) -> PoolPlan:
    """The trade that this server may make."""
    experts = served_experts(config, vllm_config)
    return PoolPlan(
        experts=experts,
        kv=kv_geometry(kv_cache_config, page_bytes=config.vmm_page_bytes),
        base_blk=base_blk,
        limit_groups=experts.max_groups(config.ratio_pct, config.e_buffer_shards),
        increment_groups=config.increment_groups,
    )
