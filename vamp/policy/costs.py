"""Equations 1 to 5 of section IV-B as pure functions. Costs are microseconds, and scores, not measured latencies."""

from __future__ import annotations

from collections.abc import Sequence


def p_eff(alpha: float, r_hit: float, age_steps: float, tau_steps: float) -> float:
    """Eq. 1: estimated probability that a cached block is asked for again.

    Args:
        r_hit: observed prefix-cache hit rate, 0..1.
        age_steps: scheduler steps since the block was last in use.
    """
    return alpha * r_hit / (1.0 + age_steps / tau_steps)


def p_eff_each(alpha: float, r_hit: float, ages_steps: Sequence[int], tau_steps: float) -> list[float]:
    """Eq. 1 for each of several blocks, as alpha * r_hit * tau / (tau + age)."""
    scale = alpha * r_hit * tau_steps
    return [scale / (tau_steps + age) for age in ages_steps]


def eviction_cost_us(p: float, n_tok: int, t_prefill_us: float, t_overhead_us: float) -> float:
    """Eq. 2, C_c: expected re-prefill of `n_tok` evicted tokens."""
    return p * (n_tok * t_prefill_us + t_overhead_us)


def offload_cost_us(n_cand_shards: int, n_shards: int, c_eff_us: float, w_steps: int) -> float:
    """Eq. 3, C_e: staging `n_cand_shards` more shards in each of the next `w_steps` steps.

    The cap at E (`n_shards`) bounds the score only, not the bytes staged.
    """
    return min(n_cand_shards, n_shards) * c_eff_us * w_steps


def preemption_cost_us(
    t_sched_us: float, t_queue_us: float, n_partial_tok: float, t_prefill_us: float, n_victims: int
) -> float:
    """Eq. 4, C_p: one victim's rescheduling, queueing and lost partial block, times G.

    ASSUMPTION: the text leaves G open. A victim adds uncached capacity only through its last partially filled
    blocks, so G is read as the number of victims needed to cover the gap. `n_partial_tok` is their mean.
    """
    return (t_sched_us + t_queue_us + n_partial_tok * t_prefill_us) * n_victims


def combined_cost_us(offload_floor_us: float, evict_remainder_us: float) -> float:
    """Eq. 5, C_b: expand by whole increments below the gap, evict the rest."""
    return offload_floor_us + evict_remainder_us
