"""What VAMP does not go together with, refused at start in one line."""

from __future__ import annotations

from typing import Any

from vamp.config import VampConfig
from vamp.errors import ConfigError
from vamp.memory.geometry import PoolPlan


def check_supported(vllm_config: Any) -> None:
    """Raises ConfigError: names the first setting that cannot be served, and what to do."""
    parallel, compilation = vllm_config.parallel_config, vllm_config.compilation_config
    refused = {
        "expert parallelism (--enable-expert-parallel)": parallel.enable_expert_parallel,
        "EPLB (--enable-eplb)": parallel.enable_eplb,
        "elastic EP": getattr(parallel, "enable_elastic_ep", False),
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "data parallelism": parallel.data_parallel_size > 1,
        "DBO (--enable-dbo)": parallel.enable_dbo,
        "sleep mode": vllm_config.model_config.enable_sleep_mode,
        "LoRA": vllm_config.lora_config is not None,
        "a KV connector": vllm_config.kv_transfer_config is not None,
        "speculative decoding": vllm_config.speculative_config is not None,
        "weight transfer": vllm_config.weight_transfer_config is not None,
    }
    for name, is_set in refused.items():
        if is_set:
            raise ConfigError(f"VAMP does not work with {name} yet; switch it off, or serve with --ratio 0")
    if vllm_config.device_config.device_type == "cpu" and compilation.mode:
        raise ConfigError(
            f"VAMP on CPU needs eager mode, compilation mode is {compilation.mode!r}; pass --enforce-eager"
        )


def check_kv_layout(kv_cache_config: Any) -> None:
    """Raises ConfigError: several layers' blocks are packed into one tensor, so that tails are not block tails."""
    for tensor in kv_cache_config.kv_cache_tensors:
        if getattr(tensor, "block_stride", 0):
            raise ConfigError("VAMP does not work with cross-layer KV blocks; switch them off, or serve with --ratio 0")


def check_limit(config: VampConfig, plan: PoolPlan) -> None:
    """Raises ConfigError: the ratio is less than the smallest portion that can change hands."""
    experts = plan.experts
    if plan.limit_groups == 0:
        raise ConfigError(
            f"vamp.ratio_pct: {config.ratio_pct:g} % of {experts.n_shards} experts are less than one group of "
            f"{experts.shards_per_group}; raise the ratio or lower vamp.vmm_page_bytes, now {config.vmm_page_bytes}"
        )
