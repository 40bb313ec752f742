"""VAMP's worker: vLLM's, with experts and KV cache over addresses whose pages change owner.

`--worker-cls vamp.engine.worker.VampCPUWorker`. Without a `vamp` key in `additional_config`, or with ratio 0, it does
what vLLM's own worker does.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

import torch
from vllm.distributed.parallel_state import get_tp_group
from vllm.v1.worker.cpu_worker import CPUWorker

from vamp.config import VampConfig, parse_vamp_config
from vamp.engine import expert_access
from vamp.engine.layout import pool_plan
from vamp.engine.plugin import check_vllm_version
from vamp.engine.worker_checks import check_kv_layout, check_supported
from vamp.engine.worker_memory import RankMemory, RankStats
from vamp.errors import ConfigError
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.geometry import PoolPlan
from vamp.memory.remapper import Remapper
from vamp.memory.vote import Ballot
from vamp.staging.host_weights import HostWeights

logger = logging.getLogger("vllm.vamp")


class VampCPUWorker(CPUWorker):
    """Attributes:
    vamp: this rank's memory; None in plain vLLM, and until the size of the KV cache is known.
    """

    vamp: RankMemory | None = None
    _vamp_config: VampConfig | None = None

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        """Raises ConfigError, VersionError: VAMP is asked for and cannot be had."""
        wanted = (vllm_config.additional_config or {}).get("vamp")
        config = parse_vamp_config(wanted) if wanted is not None else None
        if config is not None and config.ratio_pct > 0:
            check_vllm_version()
            check_supported(vllm_config)
            self._vamp_config = config
        super().__init__(vllm_config, *args, **kwargs)

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """The first moment at which both sides of the trade are known: build the memory, move experts into it."""
        config = self._vamp_config
        if config is None:
            super().initialize_from_config(kv_cache_config)
            return
        check_kv_layout(kv_cache_config)
        plan = pool_plan(config, self.vllm_config, kv_cache_config, kv_cache_config.num_blocks)
        _check_limit(config, plan)
        self.vamp = self._move_in(config, plan)
        # Only the scheduler knows how many blocks are there; here all that ever may be are laid out.
        virtual = copy.deepcopy(kv_cache_config)
        virtual.num_blocks = plan.max_blk
        for tensor in virtual.kv_cache_tensors:
            tensor.size = plan.max_blk * plan.kv.page_bytes
        self.model_runner._allocate_kv_cache_tensors = self._kv_tensors
        super().initialize_from_config(virtual)
        self.cache_config.num_gpu_blocks = kv_cache_config.num_blocks

    def _move_in(self, config: VampConfig, plan: PoolPlan) -> RankMemory:
        runners = expert_access.moe_layers(self.compilation_config.static_forward_context, plan.experts.n_layers)
        driver = MemfdDriver(config.vmm_page_bytes)
        remapper = Remapper(plan, driver, rank=self.rank)
        host = HostWeights(remapper.layout)
        for layer, runner in enumerate(runners):
            for tensor in range(len(expert_access.WEIGHTS)):
                host.take(layer, tensor, expert_access.weight_bytes(runner, tensor))
            expert_access.move_weights(runner, layer, remapper.addresses, driver)
        top_k = runners[0].routed_experts.top_k
        memory = RankMemory(remapper, host, _gather, mode=config.staging, top_k=top_k)
        expert_access.watch(runners, memory)
        self._vamp_driver = driver
        logger.info(
            "VAMP rank %d: up to %d expert groups of %d bytes, %d to %d KV blocks, host copies of %d bytes",
            self.rank,
            plan.limit_groups,
            plan.experts.group_bytes,
            plan.base_blk,
            plan.max_blk,
            host.nbytes,
        )
        return memory

    def _kv_tensors(self, kv_cache_config: Any) -> dict[str, torch.Tensor]:
        """Stands in for the model runner's allocation: layer name to raw tensor."""
        assert self.vamp is not None
        tensors = {}
        for index, spec in enumerate(kv_cache_config.kv_cache_tensors):
            region = self.vamp.remapper.addresses.kv(index)
            raw = self._vamp_driver.tensor(region, torch.int8, (region.nbytes,))
            tensors.update(dict.fromkeys(spec.shared_by, raw))
        return tensors

    def execute_model(self, scheduler_output: Any) -> Any:
        """A remap command takes effect before the forward that it rides on."""
        if self.vamp is not None:
            command = getattr(scheduler_output, "vamp_command", None)
            self.vamp.begin_step(command, scheduler_output.total_num_scheduled_tokens)
        return super().execute_model(scheduler_output)

    def vamp_stats(self) -> RankStats | None:
        """For `collective_rpc("vamp_stats")`; None in plain vLLM."""
        return self.vamp.stats() if self.vamp is not None else None

    def reload_weights(self, *args: Any, **kwargs: Any) -> None:
        """Raises ConfigError: host copies and aliases would not follow."""
        if self.vamp is not None:
            raise ConfigError("VAMP does not work with reload_weights; restart the server, or serve with --ratio 0")
        super().reload_weights(*args, **kwargs)


def _check_limit(config: VampConfig, plan: PoolPlan) -> None:
    experts = plan.experts
    if plan.limit_groups == 0:
        raise ConfigError(
            f"vamp.ratio_pct: {config.ratio_pct:g} % of {experts.n_shards} experts are less than one group of "
            f"{experts.shards_per_group}; raise the ratio or lower vamp.vmm_page_bytes, now {config.vmm_page_bytes}"
        )


def _gather(ballot: Ballot) -> Sequence[Ballot]:
    group = get_tp_group()
    if group.world_size == 1:
        return [ballot]
    ballots: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(ballots, ballot, group=group.cpu_group)
    return ballots
