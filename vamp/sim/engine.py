"""vLLM's real scheduler and KV-cache manager, built without a worker for a platform's geometry."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import vamp.sim.quiet  # noqa: F401  # isort: skip
import torch
from vllm.config import CacheConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from vamp.engine.controller import Clock
from vamp.engine.plugin import check_vllm_version
from vamp.engine.scheduler import make_scheduler
from vamp.sim.platforms import Platform

HASH_ALGO = "sha256"
MakeRequest = Callable[[str, list[int], int], Request]


@cache
def _hash_fn() -> Callable[[Any], bytes]:
    fn: Callable[[Any], bytes] = get_hash_fn_by_name(HASH_ALGO)
    init_none_hash(fn)
    return fn


def kv_cache_config(platform: Platform) -> KVCacheConfig:
    """Qwen3-Next's hybrid layout: one full-attention and three gated-delta-net groups of 12 layers share one pool.

    A block id means one page in each of the 12 tensors, used by one group's layers.
    """
    n = platform.attention_layers
    block_tok = platform.kv.block_tok
    attention = FullAttentionSpec(
        block_size=block_tok,
        num_kv_heads=platform.kv_heads,
        head_size=platform.head_dim,
        dtype=torch.bfloat16,
    )
    if attention.page_size_bytes != platform.kv.page_bytes:
        raise AssertionError(f"vLLM's page is {attention.page_size_bytes} B, ours {platform.kv.page_bytes} B")
    state = MambaSpec(
        block_size=block_tok,
        shapes=platform.state_shapes,
        dtypes=(torch.bfloat16,) * len(platform.state_shapes),
        page_size_padded=attention.page_size_bytes,
        mamba_cache_mode="align",
    )
    per_attention = platform.experts.n_layers // n
    groups = [KVCacheGroupSpec([f"layers.{per_attention * i + per_attention - 1}.attn" for i in range(n)], attention)]
    groups += [
        KVCacheGroupSpec([f"layers.{per_attention * i + g}.gdn" for i in range(n)], state)
        for g in range(per_attention - 1)
    ]
    return KVCacheConfig(num_blocks=platform.base_blk, kv_cache_tensors=[], kv_cache_groups=groups)


def build_scheduler(
    platform: Platform,
    *,
    vamp: dict[str, Any] | None,
    clock: Clock,
    reserve_full_isl: bool,
    async_scheduling: bool,
    max_num_batched_tokens: int,
    keep_decisions: bool = True,
) -> tuple[Scheduler, MakeRequest]:
    """The scheduler of one engine, and what makes its requests.

    Args:
        vamp: the `vamp` key of `additional_config`; None is plain vLLM.
    """
    check_vllm_version()
    torch.set_num_threads(1)
    block_tok = platform.kv.block_tok
    model = ModelConfig(model=platform.model_dir, skip_tokenizer_init=True, dtype="bfloat16", seed=0)
    cache_config = CacheConfig(block_size=block_tok, enable_prefix_caching=True, prefix_caching_hash_algo=HASH_ALGO)
    config = VllmConfig(
        model_config=model,
        cache_config=cache_config,
        scheduler_config=SchedulerConfig(
            max_model_len=model.max_model_len,
            is_encoder_decoder=False,
            max_num_seqs=platform.max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_chunked_prefill=True,
            async_scheduling=async_scheduling,
            scheduler_reserve_full_isl=reserve_full_isl,
        ),
        parallel_config=ParallelConfig(),
    )
    # The CPU platform's hooks have changed these for its own kernels; the scheduler must see the GPU's values.
    cache_config.block_size = cache_config.mamba_block_size = block_tok
    cache_config.mamba_cache_mode = "align"
    config.scheduler_config.async_scheduling = async_scheduling
    config.parallel_config.tensor_parallel_size = platform.tp
    config.additional_config = {"vamp": vamp} if vamp is not None else {}
    kv = kv_cache_config(platform)
    cache_config.num_gpu_blocks = kv.num_blocks
    scheduler_block_tok, hash_block_tok = resolve_kv_cache_block_sizes(kv, config)
    scheduler = make_scheduler(
        vllm_config=config,
        kv_cache_config=kv,
        structured_output_manager=StructuredOutputManager(config),
        block_size=scheduler_block_tok,
        hash_block_size=hash_block_tok,
        log_stats=True,
        clock=clock,
        keep_decisions=keep_decisions,
    )
    hasher = get_request_block_hasher(hash_block_tok, _hash_fn())

    def make_request(request_id: str, prompt: list[int], output_tok: int) -> Request:
        return Request(
            request_id=request_id,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=output_tok, ignore_eos=True),
            pooling_params=None,
            block_hasher=hasher,
        )

    return scheduler, make_request
