"""Section IV-B once more, written from the text and sharing no code with vamp.policy: decides a logged record again."""

import math
from typing import Any

from vamp.config import CostModel
from vamp.memory.geometry import PoolPlan


def _blocks(pool: PoolPlan, groups: int) -> int:
    """Pool size by walking pages: deal them to the tensors one by one and take the shortest tensor."""
    pages = groups * 6 * 2**20 // (2 * 2**20) if pool.experts.group_bytes == 6 * 2**20 else None
    assert pages is not None, "written for Qwen3-Next's 6-MiB groups"
    shortest = math.ceil(pool.base_blk * pool.kv.page_bytes / 2**21) + pages // pool.kv.n_tensors
    return max(pool.base_blk, shortest * 2**21 // pool.kv.page_bytes)


def recompute(record: dict[str, Any], pool: PoolPlan, cost: CostModel) -> str | None:
    """The plan that the paper's rules pick for this record; None when none is feasible."""
    gap, ages, groups = record["gap_blk"], record["ages_steps"], record["groups_before"]
    c_eff = cost.c_reload_us * cost.top_k / pool.experts.n_shards
    g, inc = pool.experts.shards_per_group, pool.increment_groups
    now = _blocks(pool, groups)

    def c_c(n: int) -> float:
        p = sum(cost.alpha * record["r_hit"] / (1 + a / cost.tau_steps) for a in ages[:n]) / n
        return p * (n * pool.kv.block_tok * cost.t_prefill_us + cost.t_overhead_us)

    def c_e(n_groups: int) -> float:
        return min(g * n_groups, pool.experts.n_shards) * c_eff * record["w_steps"]

    found: list[tuple[float, int, str]] = []
    if record["must_grow_blk"] == 0 and len(ages) >= gap:
        found.append((c_c(gap), 0, "evict"))
    steps = [min(groups + inc * i, pool.limit_groups) for i in range(1, 4 * gap + 2)]
    if groups < pool.limit_groups:
        if any(_blocks(pool, n) - now >= gap for n in steps):
            found.append((c_e(math.ceil(gap * pool.kv.block_bytes / pool.experts.group_bytes)), 1, "offload"))
        below = [n for n in steps if _blocks(pool, n) - now <= gap]
        if below:
            n = max(below)
            gained = _blocks(pool, n) - now
            rest = gap - gained
            if gained > 0 and gained >= record["must_grow_blk"] and 0 < rest <= len(ages):
                found.append((c_e(n - groups) + c_c(rest), 3, "offload_evict"))
    victims = record["victims_partial_tok"]
    if victims:
        one = cost.t_sched_us + record["t_queue_us"] + sum(victims) / len(victims) * cost.t_prefill_us
        found.append((one * len(victims), 2, "preempt"))
    return min(found)[2] if found else None
