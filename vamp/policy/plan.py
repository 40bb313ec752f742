"""Choose the cheapest feasible plan that covers an allocation gap (section IV-B).

`choose` is a pure function of `Situation`: the same object decides in the simulator and inside the vLLM scheduler,
and a logged situation can be decided again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vamp.config import CostModel
from vamp.memory.geometry import PoolPlan
from vamp.policy.costs import (
    combined_cost_us,
    eviction_cost_us,
    mean_p_eff,
    offload_cost_us,
    preemption_cost_us,
)


class Plan(StrEnum):
    """Ties go to the plan named first: the one that gives up least."""

    EVICT = "evict"
    OFFLOAD = "offload"
    PREEMPT = "preempt"
    OFFLOAD_EVICT = "offload_evict"


PLANS = tuple(Plan)  # iterating an Enum class costs microseconds


@dataclass(frozen=True, slots=True)
class Situation:
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


@dataclass(frozen=True, slots=True)
class Decision:
    """The cost of each plan (None: infeasible), the choice (None: no plan is feasible) and what it does.

    Attributes:
        groups_after: groups offloaded once it is carried out.
        evict_blk: cached blocks that it gives up.
    """

    costs_us: dict[Plan, float | None]
    choice: Plan | None
    groups_after: int
    evict_blk: int
    p_eff: float
    n_cand_shards: int


def _offload_us(s: Situation, n_groups: int, pool: PoolPlan, cost: CostModel) -> float:
    experts = pool.experts
    n_cand = experts.shards_per_group * n_groups
    return offload_cost_us(n_cand, experts.n_shards, cost.c_eff_us(experts.n_shards), s.w_steps)


def choose(s: Situation, pool: PoolPlan, cost: CostModel) -> Decision:
    """Compare the four plans; at the offload limit only evict and preempt remain."""
    block_tok, cached = pool.kv.block_tok, len(s.ages_steps)
    costs: dict[Plan, float | None] = dict.fromkeys(PLANS)
    groups = dict.fromkeys(PLANS, s.groups)
    evicted = dict.fromkeys(PLANS, 0)

    p = mean_p_eff(cost.alpha, s.r_hit, s.ages_steps, cost.tau_steps)
    if s.must_grow_blk <= 0 and cached >= s.gap_blk:
        costs[Plan.EVICT] = eviction_cost_us(p, s.gap_blk * block_tok, cost.t_prefill_us, cost.t_overhead_us)
        evicted[Plan.EVICT] = s.gap_blk

    n_groups = pool.groups_for_gap(s.gap_blk)
    if s.groups < pool.limit_groups:
        have_blk = pool.capacity_blk(s.groups)
        full = pool.grow_up_to(s.groups, s.gap_blk)
        if pool.capacity_blk(full) - have_blk >= s.gap_blk:
            costs[Plan.OFFLOAD] = _offload_us(s, n_groups, pool, cost)
            groups[Plan.OFFLOAD] = full
        part = pool.grow_within(s.groups, s.gap_blk)
        gained = pool.capacity_blk(part) - have_blk
        rest = s.gap_blk - gained
        if gained > 0 and gained >= s.must_grow_blk and 0 < rest <= cached:
            p_rest = mean_p_eff(cost.alpha, s.r_hit, s.ages_steps[:rest], cost.tau_steps)
            costs[Plan.OFFLOAD_EVICT] = combined_cost_us(
                _offload_us(s, part - s.groups, pool, cost),
                eviction_cost_us(p_rest, rest * block_tok, cost.t_prefill_us, cost.t_overhead_us),
            )
            groups[Plan.OFFLOAD_EVICT], evicted[Plan.OFFLOAD_EVICT] = part, rest

    if s.victims_partial_tok:
        n = len(s.victims_partial_tok)
        costs[Plan.PREEMPT] = preemption_cost_us(
            cost.t_sched_us, s.t_queue_us, sum(s.victims_partial_tok) / n, cost.t_prefill_us, n
        )

    choice, lowest = None, float("inf")
    for plan in PLANS:
        us = costs[plan]
        if us is not None and us < lowest:
            choice, lowest = plan, us
    return Decision(
        costs_us=costs,
        choice=choice,
        groups_after=groups[choice] if choice else s.groups,
        evict_blk=evicted[choice] if choice else 0,
        p_eff=p,
        n_cand_shards=pool.experts.shards_per_group * n_groups,
    )
