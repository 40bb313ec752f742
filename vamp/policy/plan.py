"""Choose the cheapest feasible plan that covers an allocation gap (section IV-B).

`choose` is a pure function of `Situation`: the same object decides in the simulator and inside the vLLM scheduler,
and a logged situation can be decided again.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import NamedTuple

from vamp.config import CostModel
from vamp.memory.geometry import PoolPlan
from vamp.policy.costs import (
    combined_cost_us,
    eviction_cost_us,
    offload_cost_us,
    p_eff_each,
    preemption_cost_us,
)


class Plan(StrEnum):
    """Ties go to the plan named first: the one that gives up least."""

    EVICT = "evict"
    OFFLOAD = "offload"
    PREEMPT = "preempt"
    OFFLOAD_EVICT = "offload_evict"


PLANS = tuple(Plan)  # iterating an Enum class costs microseconds


class Situation(NamedTuple):
    """Everything a decision depends on.

    Attributes:
        gap_blk: AllocationGap: uncached blocks missing for this allocation; at least 1.
        must_grow_blk: of these, blocks that eviction cannot give because fewer are free at all.
        ages_steps: ages of the cached free blocks that would go, in eviction order; at most `gap_blk` of them.
        r_hit: observed hit rate, 0..1.
        w_steps: accounting span, already clamped.
        groups: groups offloaded now.
        victims_partial_tok: tokens in the partial block of each request that would be preempted; empty when preemption
            cannot cover the gap (or the request is not running yet, where vLLM has no path to preempt for it).
        t_queue_us: current estimate.
    """

    gap_blk: int
    must_grow_blk: int
    ages_steps: tuple[int, ...]
    r_hit: float
    w_steps: int
    groups: int
    victims_partial_tok: tuple[int, ...]
    t_queue_us: float


class Decision(NamedTuple):
    """The score of each plan in microseconds (None: infeasible), the choice (None: nothing is feasible), its effect.

    Attributes:
        groups_after: groups offloaded once it is carried out.
        evict_blk: cached blocks that it gives up.
    """

    evict_us: float | None
    offload_us: float | None
    preempt_us: float | None
    offload_evict_us: float | None
    choice: Plan | None
    groups_after: int
    evict_blk: int
    p_eff: float
    n_cand_shards: int

    @property
    def costs_us(self) -> dict[Plan, float | None]:
        return dict(zip(PLANS, (self.evict_us, self.offload_us, self.preempt_us, self.offload_evict_us), strict=True))


def choose(s: Situation, pool: PoolPlan, cost: CostModel) -> Decision:
    """Compare the four plans; at the offload limit only evict and preempt remain.

    Written flat, on local names: it runs on the scheduler's critical path and answers in tens of microseconds.
    """
    gap, cached, experts = s.gap_blk, len(s.ages_steps), pool.experts
    evict_us = offload_us = preempt_us = offload_evict_us = None
    n_groups = pool.groups_for_gap(gap)

    each = p_eff_each(cost.alpha, s.r_hit, s.ages_steps, cost.tau_steps)
    p = sum(each) / cached if cached else 0.0
    if s.must_grow_blk <= 0 and cached >= gap:
        evict_us = eviction_cost_us(p, gap * pool.kv.block_tok, cost.t_prefill_us, cost.t_overhead_us)

    full = part = s.groups
    rest = 0
    if s.groups < pool.limit_groups:
        g, n_shards = experts.shards_per_group, experts.n_shards
        c_eff_us = cost.c_eff_us(n_shards)
        capacities = pool.capacities_blk
        have_blk = capacities[s.groups]
        full = pool.grow_up_to(s.groups, gap)
        if capacities[full] - have_blk >= gap:
            offload_us = offload_cost_us(g * n_groups, n_shards, c_eff_us, s.w_steps)
        part = pool.grow_within(s.groups, gap)
        gained = capacities[part] - have_blk
        rest = gap - gained
        if 0 < gained >= s.must_grow_blk and 0 < rest <= cached:
            p_rest = sum(each[:rest]) / rest
            offload_evict_us = combined_cost_us(
                offload_cost_us(g * (part - s.groups), n_shards, c_eff_us, s.w_steps),
                eviction_cost_us(p_rest, rest * pool.kv.block_tok, cost.t_prefill_us, cost.t_overhead_us),
            )

    if s.victims_partial_tok:
        n = len(s.victims_partial_tok)
        partial_tok = sum(s.victims_partial_tok) / n
        preempt_us = preemption_cost_us(cost.t_sched_us, s.t_queue_us, partial_tok, cost.t_prefill_us, n)

    choice, lowest, groups_after, evict_blk = None, inf, s.groups, 0
    if evict_us is not None:
        choice, lowest, evict_blk = Plan.EVICT, evict_us, gap
    if offload_us is not None and offload_us < lowest:
        choice, lowest, groups_after, evict_blk = Plan.OFFLOAD, offload_us, full, 0
    if preempt_us is not None and preempt_us < lowest:
        choice, lowest, groups_after, evict_blk = Plan.PREEMPT, preempt_us, s.groups, 0
    if offload_evict_us is not None and offload_evict_us < lowest:
        choice, groups_after, evict_blk = Plan.OFFLOAD_EVICT, part, rest
    return Decision(
        evict_us=evict_us,
        offload_us=offload_us,
        preempt_us=preempt_us,
        offload_evict_us=offload_evict_us,
        choice=choice,
        groups_after=groups_after,
        evict_blk=evict_blk,
        p_eff=p,
        n_cand_shards=experts.shards_per_group * n_groups,
    )
