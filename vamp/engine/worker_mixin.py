"""What VAMP adds to a vLLM worker, on the CPU and on GPUs alike.

A worker class puts `VampWorkerMixin` before vLLM's own worker and says how experts move in (`_move_in`). Without a
`vamp` key in `additional_config`, or with ratio 0, the result does what vLLM's own worker does.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from vamp.config import VampConfig, parse_vamp_config
from vamp.engine.layout import pool_plan
from vamp.engine.plugin import check_vllm_version
from vamp.engine.worker_checks import check_kv_layout, check_limit, check_supported
from vamp.engine.worker_memory import RankMemory, RankStats
from vamp.errors import ConfigError
from vamp.memory.driver import VmmDriver
from vamp.memory.geometry import PoolPlan
from vamp.memory.vote import Ballot, Verdict


class VampWorkerMixin:
    """Attributes:
    vamp: this rank's memory; None in plain vLLM, and until the size of the KV cache is known.
    """

    vamp: RankMemory | None = None
    _vamp_config: VampConfig | None = None
    vllm_config: Any
    cache_config: Any
    model_runner: Any

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        """Raises ConfigError, VersionError: VAMP is asked for and cannot be had."""
        wanted = (vllm_config.additional_config or {}).get("vamp")
        config = parse_vamp_config(wanted) if wanted is not None else None
        if config is not None and config.ratio_pct > 0:
            check_vllm_version()
            check_supported(vllm_config)
            self._vamp_config = config
        super().__init__(without_vamp(vllm_config), *args, **kwargs)  # type: ignore[call-arg]

    def _move_in(self, config: VampConfig, plan: PoolPlan) -> tuple[RankMemory, VmmDriver]:
        """Build the memory, move the experts into it, and have it told when they are read."""
        raise NotImplementedError

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """The first moment at which both sides of the trade are known."""
        config = self._vamp_config
        if config is None:
            super().initialize_from_config(kv_cache_config)  # type: ignore[misc]
            return
        check_kv_layout(kv_cache_config)
        plan = pool_plan(config, self.vllm_config, kv_cache_config, kv_cache_config.num_blocks)
        check_limit(config, plan)
        memory, driver = self._move_in(config, plan)
        self.vamp = memory
        # Only the scheduler knows how many blocks are there; here all that ever may be are laid out.
        virtual = copy.deepcopy(kv_cache_config)
        virtual.num_blocks = plan.max_blk
        for tensor in virtual.kv_cache_tensors:
            tensor.size = plan.max_blk * plan.kv.page_bytes
        self.model_runner._allocate_kv_cache_tensors = lambda made: _kv_tensors(made, memory, driver)
        super().initialize_from_config(virtual)  # type: ignore[misc]
        self.cache_config.num_gpu_blocks = kv_cache_config.num_blocks

    def execute_model(self, scheduler_output: Any) -> Any:
        if self.vamp is not None:
            self.vamp.begin_step(scheduler_output.total_num_scheduled_tokens)
        return super().execute_model(scheduler_output)  # type: ignore[misc]

    def vamp_ready(self) -> bool:
        """Whether this rank can remap."""
        return self.vamp is not None

    def vamp_prepare(self, seq: int, n_groups: int) -> Ballot:
        """First half of a remap (see vamp.engine.ranks); this rank's ballot."""
        return self._memory().prepare(seq, n_groups)

    def vamp_finish(self, verdict: Verdict) -> int:
        """Second half; the groups that are offloaded now."""
        return self._memory().finish(verdict)

    def vamp_stats(self) -> RankStats | None:
        """For `collective_rpc("vamp_stats")`; None in plain vLLM."""
        return self.vamp.stats() if self.vamp is not None else None

    def reload_weights(self, *args: Any, **kwargs: Any) -> None:
        """Raises ConfigError: host copies and aliases would not follow."""
        if self.vamp is not None:
            raise ConfigError("VAMP does not work with reload_weights; restart the server, or serve with --ratio 0")
        super().reload_weights(*args, **kwargs)  # type: ignore[misc]

    def _memory(self) -> RankMemory:
        if self.vamp is None:
            raise ConfigError(
                "this worker serves without VAMP; give both --scheduler-cls and --worker-cls the vamp key"
            )
        return self.vamp


def without_vamp(vllm_config: Any) -> Any:
    """The same configuration, its parts shared, without the `vamp` key: what the model is built and compiled with.

    `VllmConfig.compute_hash`, the key of the torch.compile cache, covers `additional_config`; but no setting of VAMP
    changes a graph, since experts are read inside an opaque operator. So all ratios and plain vLLM share one cache.
    The scheduler, which may live in the same process, keeps the configuration that it was given.
    """
    if "vamp" not in (vllm_config.additional_config or {}):
        return vllm_config
    plain = copy.copy(vllm_config)
    plain.additional_config = {key: value for key, value in vllm_config.additional_config.items() if key != "vamp"}
    return plain


def _kv_tensors(kv_cache_config: Any, memory: RankMemory, driver: VmmDriver) -> dict[str, torch.Tensor]:
    """Stands in for the model runner's allocation: layer name to raw tensor."""
    tensors = {}
    for index, spec in enumerate(kv_cache_config.kv_cache_tensors):
        region = memory.remapper.addresses.kv(index)
        raw = driver.tensor(region, torch.int8, (region.nbytes,))
        tensors.update(dict.fromkeys(spec.shared_by, raw))
    return tensors
