"""The controller: observes, decides, grows the pool (sections IV-B and IV-C).

One object per scheduler. It knows blocks and groups only; where bytes are and how they move is the worker's business,
told once per step by `take_command`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from vllm.v1.request import Request

from vamp.config import CostModel
from vamp.engine.command import RemapCommand
from vamp.engine.kv_pool import VampBlockPool
from vamp.memory.geometry import PoolPlan
from vamp.policy.log import DecisionLog, decision_record
from vamp.policy.plan import Decision, Plan, Situation, choose
from vamp.policy.reuse import HitWindow, QueueDelay


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
    decide_ns: CPU time from a gap found to a plan chosen, one entry per decision, filled while `timing` is on.
    """

    def __init__(self, pool: VampBlockPool, plan: PoolPlan, cost: CostModel, clock: Clock, log: DecisionLog) -> None:
        self.pool, self.plan, self.cost, self.clock, self.log = pool, plan, cost, clock, log
        self.hits = HitWindow(cost.hit_window_requests)
        self.queue_delay = QueueDelay(cost.t_queue_init_us)
        self.groups = 0
        self.invocations = 0
        self.deferred = 0
        self.counts: dict[Plan, int] = dict.fromkeys(Plan, 0)
        self.timing = False
        self.decide_ns: list[int] = []
        self._told = 0
        self._seq = 0

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
        decision = choose(situation, self.plan, self.cost)
        if self.timing:
            self.decide_ns.append(time.thread_time_ns() - started_ns)
        before = self.pool.num_gpu_blocks
        self._carry_out(decision)
        if decision.choice is not None and self.log.active:
            self.log.add(
                decision_record(
                    step=self.pool.step,
                    t_s=self.clock.now_s(),
                    request_id=request_id,
                    phase=phase,
                    situation=situation,
                    decision=decision,
                    pool_before_blk=before,
                    pool_after_blk=self.pool.num_gpu_blocks,
                )
            )
        return decision.choice

    def _carry_out(self, decision: Decision) -> None:
        if decision.choice is None:
            self.deferred += 1
            return
        self.counts[decision.choice] += 1
        if decision.groups_after > self.groups:
            self.groups = decision.groups_after
            self.pool.grow(self.plan.capacity_blk(self.groups) - self.pool.num_gpu_blocks)

    def restore(self, n_groups: int) -> bool:
        """Give experts back, so that `n_groups` stay offloaded; False and no change while the blocks are in use.

        Ranks follow with the next step that is scheduled.
        """
        target_blk = self.plan.capacity_blk(n_groups) if n_groups else self.plan.base_blk
        if n_groups > self.groups or not self.pool.shrink(self.pool.num_gpu_blocks - target_blk):
            return False
        self.groups = n_groups
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

    def take_command(self) -> RemapCommand | None:
        """What ranks must do before the step just scheduled; None if the boundary did not move."""
        if self.groups == self._told:
            return None
        self._told = self.groups
        self._seq += 1
        return RemapCommand(self._seq, self.groups, self.pool.num_gpu_blocks)
