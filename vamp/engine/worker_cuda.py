"""VAMP's worker for CUDA devices: `--worker-cls vamp.engine.worker_cuda.VampCUDAWorker`.

Inside CUDA graphs staging is routed, whatever mode is asked for: no Python runs there. Steps with more tokens than the
largest graph run outside, and there the mode counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu_worker import Worker

from vamp.config import VampConfig
from vamp.engine import expert_access_cuda as expert_access
from vamp.engine.layout import served_experts
from vamp.engine.moe_layers import moe_layers
from vamp.engine.worker_memory import RankMemory
from vamp.engine.worker_memory_cuda import CudaRankMemory
from vamp.engine.worker_mixin import VampWorkerMixin
from vamp.errors import ConfigError
from vamp.memory.addresses import Addresses
from vamp.memory.driver import VmmDriver
from vamp.memory.drivers.cuda import CudaDriver
from vamp.memory.geometry import ExpertGeometry, PoolPlan
from vamp.memory.remapper import Remapper
from vamp.memory.spans import N_STAGING_BUFFERS, SpanLayout
from vamp.staging.cuda.copier import CudaCopier

logger = logging.getLogger("vllm.vamp")


class VampCUDAWorker(VampWorkerMixin, Worker):
    """Experts and KV cache over pages of CUDA's virtual memory management."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        """Raises ConfigError: a setting that only CUDA has does not go with VAMP."""
        super().__init__(vllm_config, *args, **kwargs)
        if self._vamp_config is None:
            return
        if self.use_v2_model_runner:
            raise ConfigError("VAMP needs vLLM's V1 model runner; set VLLM_USE_V2_MODEL_RUNNER=0, or --ratio 0")
        if getattr(vllm_config.model_config, "enable_cumem_allocator", False):
            raise ConfigError(
                "VAMP does not work with --enable-cumem-allocator; switch it off, or serve with --ratio 0"
            )

    def determine_available_memory(self) -> int:
        """vLLM's own profile, less what VAMP adds to the weights: then the KV cache fits beside it."""
        available: int = super().determine_available_memory()
        if self._vamp_config is None or self.cache_config.kv_cache_memory_bytes:
            return available
        return available - added_bytes(self._vamp_config, served_experts(self._vamp_config, self.vllm_config))

    def compile_or_warm_up_model(self) -> Any:
        """vLLM captures its graphs here, and only here; a node of theirs that stages can then be switched off."""
        if not isinstance(self.vamp, CudaRankMemory):
            return super().compile_or_warm_up_model()
        with self.vamp.switch.capturing():
            times = super().compile_or_warm_up_model()
        logger.info("VAMP rank %d: %d staging kernels in CUDA graphs", self.rank, self.vamp.switch.n_nodes)
        return times

    def _move_in(self, config: VampConfig, plan: PoolPlan) -> tuple[RankMemory, VmmDriver]:
        runners = moe_layers(
            self.compilation_config.static_forward_context, plan.experts.n_layers, expert_access.kernels_of
        )
        device = self.device.index
        driver = CudaDriver(config.vmm_page_bytes, device)
        copier = CudaCopier(SpanLayout(plan), device)

        def move_in(addresses: Addresses, layer: int) -> None:
            expert_access.move_layer(runners[layer], layer, addresses, driver, copier)

        remapper = Remapper(plan, driver, rank=self.rank, move_in=move_in)
        copier.addresses = remapper.addresses
        copier.wait()
        memory = CudaRankMemory(
            remapper,
            copier,
            driver,
            device,
            mode=config.staging,
            top_k=runners[0].routed_experts.top_k,
            graph_tok=_graph_tok(self.compilation_config),
            real_rows_only=expert_access.rows_are_independent(runners[0]),
        )
        expert_access.watch(runners, memory)
        # vLLM's own place for it: all inputs of the step are queued when it calls this, and no kernel of the model.
        self.model_runner._model_forward = _after(memory.before_forward, self.model_runner._model_forward)
        logger.info(
            "VAMP rank %d: up to %d expert groups of %d bytes, %d to %d KV blocks, host copies of %d bytes, %s",
            self.rank,
            plan.limit_groups,
            plan.experts.group_bytes,
            plan.base_blk,
            plan.max_blk,
            copier.weights.nbytes,
            memory.costs,
        )
        return memory, driver


def _after(first: Callable[[], None], forward: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        first()
        return forward(*args, **kwargs)

    return watched


def added_bytes(config: VampConfig, experts: ExpertGeometry) -> int:
    """Device memory that VAMP takes on top of the weights: staging buffers, and experts rounded up to pages.

    KV tails come out of the experts' pages; the KV base takes at most a page per tensor more than vLLM counts.
    """
    depth = -(-experts.max_groups(config.ratio_pct, config.e_buffer_shards) // experts.eligible_layers)
    page = experts.page_bytes
    rounded = sum(-(-experts.n_shards * size // page) * page for size in experts.tensor_bytes)
    return N_STAGING_BUFFERS * depth * experts.group_bytes + experts.n_layers * rounded - experts.weights_bytes


def _graph_tok(compilation_config: Any) -> int:
    if compilation_config.cudagraph_mode in (None, CUDAGraphMode.NONE):
        return 0
    return int(compilation_config.max_cudagraph_capture_size or 0)
