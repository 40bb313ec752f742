"""VAMP's worker for the CPU build: `--worker-cls vamp.engine.worker.VampCPUWorker`."""

from __future__ import annotations

import logging
from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker

from vamp.config import VampConfig
from vamp.engine import expert_access
from vamp.engine.cpu_host import work_around_amx
from vamp.engine.moe_layers import WEIGHTS, moe_layers
from vamp.engine.worker_memory import RankMemory
from vamp.engine.worker_mixin import VampWorkerMixin
from vamp.memory.driver import VmmDriver
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.geometry import PoolPlan
from vamp.memory.remapper import Remapper
from vamp.staging.host_weights import HostCopier, HostWeights
from vamp.staging.routed import Routed
from vamp.staging.whole_region import WholeRegion

logger = logging.getLogger("vllm.vamp")


class VampCPUWorker(VampWorkerMixin, CPUWorker):
    """Experts and KV cache over memfd pages."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        work_around_amx()
        super().__init__(vllm_config, *args, **kwargs)

    def _move_in(self, config: VampConfig, plan: PoolPlan) -> tuple[RankMemory, VmmDriver]:
        runners = moe_layers(
            self.compilation_config.static_forward_context, plan.experts.n_layers, expert_access.kernel_of
        )
        driver = MemfdDriver(config.vmm_page_bytes)
        remapper = Remapper(plan, driver, rank=self.rank)
        host = HostWeights(remapper.layout)
        for layer, runner in enumerate(runners):
            for tensor in range(len(WEIGHTS)):
                host.take(layer, tensor, expert_access.weight_bytes(runner, tensor))
            expert_access.move_weights(runner, layer, remapper.addresses, driver)
        copier = HostCopier(host, remapper.addresses, len(plan.experts.tensor_bytes))
        memory = RankMemory(
            remapper,
            copier,
            {"whole_region": WholeRegion(remapper, copier), "routed": Routed(remapper, copier)},
            mode=config.staging,
            top_k=runners[0].routed_experts.top_k,
        )
        expert_access.watch(runners, memory)
        logger.info(
            "VAMP rank %d: up to %d expert groups of %d bytes, %d to %d KV blocks, host copies of %d bytes",
            self.rank,
            plan.limit_groups,
            plan.experts.group_bytes,
            plan.base_blk,
            plan.max_blk,
            host.nbytes,
        )
        return memory, driver
