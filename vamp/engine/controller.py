"""The controller: observes, decides, grows the pool (sections IV-B and IV-C).

One object per scheduler. It knows blocks and groups only; where bytes are and how they move is the ranks' business.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from vllm.v1.request import Request

from vamp.config import CostModel
from vamp.engine.kv_pool import VampBlockPool
from vamp.engine.metrics import SchedulerMetrics
from vamp.engine.ranks import Ranks
from vamp.errors import RemapError
from vamp.memory.geometry import PoolPlan
from vamp.policy.log import DecisionLog, decision_record
from vamp.policy.plan import Decision, Plan, Situation, choose
from vamp.policy.reuse import HitWindow, QueueDelay

logger = logging.getLogger("vllm.vamp")  # a child of vLLM's logger, so that it prints as vLLM does

RETRY_STEPS = 100
"""After a remap that some rank could not do, decisions leave offloading out for so many steps."""


class Clock(Protocol):
    """Where the scheduler reads time: the wall, or the simulator's."""

    def now_s(self) -> float: ...


class WallClock:
    def now_s(self) -> float:
        return time.monotonic()


class Controller:
    """Attributes:
    invocations: allocations that found too few uncached blocks.
    deferred: of these, how many had no feasible plan (vLLM then waits or preempts, as it would without VAMP).
    failed_remaps: remaps that no rank committed, since one of them could not.
    decide_ns: CPU time from a gap found to a plan chosen, one entry per decision, filled while `timing` is on.
    """

    def __init__(
        self,
        pool: VampBlockPool,
        plan: PoolPlan,
        cost: CostModel,
        clock: Clock,
        log: DecisionLog,
        *,
        ranks: Ranks | None = None,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        """Args:
        ranks: whose memory follows; None in the simulator, where nothing has to.
        """
        self.pool, self.plan, self.cost, self.clock, self.log = pool, plan, cost, clock, log
        self.hits = HitWindow(cost.hit_window_requests)
        self.queue_delay = QueueDelay(cost.t_queue_init_us)
        self.groups = 0
        self.invocations = 0
        self.deferred = 0
        self.failed_remaps = 0
        self.counts: dict[Plan, int] = dict.fromkeys(Plan, 0)
        self.timing = False
        self.decide_ns: list[int] = []
        self._ranks, self._metrics = ranks, metrics
        self._retry_step = 0
        self._show_pool()

    def decide(
        self,
        *,
        gap_blk: int,
        must_grow_blk: int,
        request_id: str,
        phase: str,
        running: Sequence[Request],
        victims_partial_tok: tuple[int, ...],
        spare: set[int],
        started_ns: int,
    ) -> Plan | None:
        """Cover a gap; offloading takes effect in the block pool at once.

        Args:
            phase: "running" or "waiting": whether the request that needs blocks runs already.
            running: requests whose remaining decode budget gives w.
            victims_partial_tok: see `Situation`.
            spare: free blocks about to be hit, no eviction candidates.
            started_ns: this thread's CPU time when the gap was found.
        """
        self.invocations += 1
        situation = Situation(
            gap_blk=gap_blk,
            must_grow_blk=must_grow_blk,
            ages_steps=self.pool.eviction_ages_steps(gap_blk, spare),
            r_hit=self.hits.r_hit,
            w_steps=self.w_steps(running),
            groups=self.groups,
            victims_partial_tok=victims_partial_tok,
            t_queue_us=self.queue_delay.us,
        )
        decision = self._choose(situation)
        if self.timing:
            self.decide_ns.append(time.thread_time_ns() - started_ns)
        before_blk = self.pool.num_gpu_blocks
        if decision.groups_after > self.groups and not self._move(decision.groups_after):
            decision = self._choose(situation)
        self._count(decision)
        if decision.choice is not None and self.log.active:
            self.log.add(
                decision_record(
                    step=self.pool.step,
                    t_s=self.clock.now_s(),
                    request_id=request_id,
                    phase=phase,
                    situation=situation,
                    decision=decision,
                    pool_before_blk=before_blk,
                    pool_after_blk=self.pool.num_gpu_blocks,
                )
            )
        return decision.choice

    def _choose(self, situation: Situation) -> Decision:
        plan = self.plan
        if self.pool.step < self._retry_step:
            plan = replace(plan, limit_groups=self.groups)
        return choose(situation, plan, self.cost)

    def _count(self, decision: Decision) -> None:
        if decision.choice is None:
            self.deferred += 1
        else:
            self.counts[decision.choice] += 1
        if self._metrics:
            self._metrics.decided(decision.choice)

    def _move(self, n_groups: int) -> bool:
        """Have the ranks move the boundary, then grow the pool; False and no change if a rank cannot."""
        capacity_blk = self.plan.capacity_blk(n_groups)
        if not self._ranks_follow(n_groups):
            return False
        self.groups = n_groups
        self.pool.grow(capacity_blk - self.pool.num_gpu_blocks)
        self._show_pool()
        return True

    def _ranks_follow(self, n_groups: int) -> bool:
        if self._ranks is None:
            return True
        started_s = time.perf_counter()
        verdict = self._ranks.remap(n_groups)
        took_s = time.perf_counter() - started_s
        if self._metrics:
            self._metrics.remapped(verdict.commit, took_s)
        if not verdict.commit:
            self.failed_remaps += 1
            self._retry_step = self.pool.step + RETRY_STEPS
            logger.warning(
                "VAMP could not move from %d to %d expert groups, no rank did, serving goes on without: %s",
                self.groups,
                n_groups,
                verdict.reason,
            )
        return verdict.commit

    def _show_pool(self) -> None:
        if self._metrics:
            self._metrics.pool(self.plan.base_blk, self.pool.num_gpu_blocks, self.groups)

    def restore(self, n_groups: int) -> bool:
        """Give experts back, so that `n_groups` stay offloaded; False and no change while the blocks are in use.

        Raises:
            RemapError: a rank could not; the blocks are in the pool again.
        """
        target_blk = self.plan.capacity_blk(n_groups) if n_groups else self.plan.base_blk
        dropped_blk = self.pool.num_gpu_blocks - target_blk
        if n_groups > self.groups or not self.pool.shrink(dropped_blk):
            return False
        if n_groups < self.groups and not self._ranks_follow(n_groups):
            self.pool.grow(dropped_blk)
            raise RemapError(f"{self.groups - n_groups} expert groups could not be given back, see the log; try later")
        self.groups = n_groups
        self._show_pool()
        return True

    def w_steps(self, running: Sequence[Request]) -> int:
        """Minimum remaining decode budget among running requests, clamped (section V); the upper clamp if none runs."""
        low, w = self.cost.w_min_steps, self.cost.w_max_steps
        for r in running:
            left = r.max_tokens - len(r._output_token_ids)
            if left < w:
                if left <= low:
                    return low
                w = left
        return w
