"""VAMP's schedulers: vLLM's own, with the pool and the KV manager adopted."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from vamp.config import VampConfig, parse_vamp_config
from vamp.engine.controller import Clock, Controller, WallClock
from vamp.engine.kv_manager import VampKVCacheManager
from vamp.engine.kv_pool import VampBlockPool
from vamp.engine.layout import pool_plan
from vamp.engine.metrics import SchedulerMetrics
from vamp.engine.ranks import ExecutorRanks, ranks_of_engine_core
from vamp.policy.log import DecisionLog


class VampMixin:
    """What both schedulers add. `vamp` is the controller."""

    vamp: Controller
    running: list[Request]
    kv_cache_manager: Any
    kv_cache_config: Any
    cache_config: Any

    def _vamp_start(
        self, config: VampConfig, vllm_config: Any, clock: Clock, keep_decisions: bool, ranks: ExecutorRanks | None
    ) -> None:
        if ranks:
            ranks.check_ready()
        pool = VampBlockPool.adopt(self.kv_cache_manager.block_pool)
        plan = pool_plan(config, vllm_config, self.kv_cache_config, pool.num_gpu_blocks)
        log = DecisionLog(config.decision_log, keep=keep_decisions)
        metrics = SchedulerMetrics() if ranks else None
        self.vamp = Controller(pool, plan, config.cost, clock, log, ranks=ranks, metrics=metrics)
        VampKVCacheManager.adopt(self.kv_cache_manager, self.vamp, self.running)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        vamp = self.vamp
        vamp.pool.step += 1
        manager = self.kv_cache_manager
        manager.running = self.running  # vLLM rebinds the list now and then
        output: SchedulerOutput = super().schedule(*args, **kwargs)  # type: ignore[misc]
        self.kv_cache_config.num_blocks = self.cache_config.num_gpu_blocks = vamp.pool.num_gpu_blocks
        if vamp.queue_delay:
            now_s = vamp.clock.now_s()
            for request_id in vamp.queue_delay.waiting():
                if request_id in output.num_scheduled_tokens:
                    vamp.queue_delay.rescheduled(request_id, now_s)
        return output

    def _preempt_request(self, request: Request, timestamp: float) -> None:
        super()._preempt_request(request, timestamp)  # type: ignore[misc]
        self.vamp.queue_delay.preempted(request.request_id, self.vamp.clock.now_s())

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self.vamp.queue_delay.forget(request.request_id)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]

    def shutdown(self) -> None:
        self.vamp.log.close()
        super().shutdown()  # type: ignore[misc]


class VampScheduler(VampMixin, Scheduler):
    """For engines that wait for each step (the CPU build)."""


class VampAsyncScheduler(VampMixin, AsyncScheduler):
    """For engines that schedule a step while another runs (GPUs)."""


def make_scheduler(
    *args: Any, vllm_config: Any, clock: Clock | None = None, keep_decisions: bool = False, **kwargs: Any
) -> Scheduler:
    """`--scheduler-cls vamp.engine.scheduler.make_scheduler`: vLLM calls this as it would call a class.

    Without a `vamp` key in `additional_config`, or with ratio 0, the result is vLLM's own scheduler, untouched.

    Raises:
        ConfigError: the `vamp` key does not validate.
    """
    is_async = bool(vllm_config.scheduler_config.async_scheduling)
    wanted = (vllm_config.additional_config or {}).get("vamp")
    config = parse_vamp_config(wanted) if wanted is not None else None
    if config is None or config.ratio_pct == 0:
        stock: Scheduler = (AsyncScheduler if is_async else Scheduler)(*args, vllm_config=vllm_config, **kwargs)
        return stock
    scheduler = (VampAsyncScheduler if is_async else VampScheduler)(*args, vllm_config=vllm_config, **kwargs)
    scheduler._vamp_start(config, vllm_config, clock or WallClock(), keep_decisions, ranks_of_engine_core())
    return scheduler
