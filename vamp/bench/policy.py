"""How long the controller takes to decide: on recorded situations, and inside the scheduler under load.

The situations are those of the run whose decisions section VI-D reports. Each is decided again and again, alone, which
gives the decision's own cost; inside the scheduler the same decision also gathers its inputs and finds cold caches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vamp.bench.process import fresh
from vamp.config import CostModel
from vamp.errors import RunError
from vamp.experiments.spec import RunSpec, make_spec
from vamp.memory.geometry import PoolPlan
from vamp.policy.plan import Situation, choose

LIMIT_P99_US = 50.0
ROUNDS = 50
SPEC = {
    "platform": "h200_nvl_tp4",
    "ratio_pct": 20.0,
    "workload": {"kind": "inhouse", "concurrency": 32},
}


@dataclass(frozen=True, slots=True)
class DecisionLatency:
    """CPU microseconds per decision, over `n` situations decided `ROUNDS` times; `in_scheduler_*` with its inputs."""

    n: int
    p50_us: float
    p99_us: float
    in_scheduler_p50_us: float
    in_scheduler_p99_us: float

    @property
    def within(self) -> bool:
        return self.p99_us <= LIMIT_P99_US


def measure() -> DecisionLatency:
    """Run it once, not from the store, then decide its situations again.

    Raises:
        RunError: the controller decided nothing.
    """
    return fresh(_measure, make_spec(**SPEC))


def _measure(spec: RunSpec) -> DecisionLatency:
    from vamp.sim.run import run_spec

    result = run_spec(spec)
    if not result.decisions:
        raise RunError("no decision to time: the run never fell short of blocks")
    p50_us, p99_us = decide_again([situation_of(d) for d in result.decisions], pool_plan_of(spec), spec.cost)
    inside = (result.meta["decision_us_p50"], result.meta["decision_us_p99"])
    return DecisionLatency(len(result.decisions), p50_us, p99_us, *inside)


def pool_plan_of(spec: RunSpec) -> PoolPlan:
    """The trade that this run could make."""
    from vamp.sim.platforms import load_platform

    p = load_platform(spec.platform)
    return PoolPlan(p.experts, p.kv, p.base_blk, p.experts.max_groups(spec.ratio_pct))


def situation_of(record: dict[str, Any]) -> Situation:
    """What the decision in this record depended on."""
    return Situation(
        gap_blk=record["gap_blk"],
        must_grow_blk=record["must_grow_blk"],
        ages_steps=tuple(record["ages_steps"]),
        r_hit=record["r_hit"],
        w_steps=record["w_steps"],
        groups=record["groups_before"],
        victims_partial_tok=tuple(record["victims_partial_tok"]),
        t_queue_us=record["t_queue_us"],
    )


def decide_again(situations: Sequence[Situation], plan: PoolPlan, cost: CostModel) -> tuple[float, float]:
    """Median and 99th percentile over all decisions, microseconds of CPU time."""
    took_ns: list[int] = []
    for _ in range(ROUNDS):
        for s in situations:
            start_ns = time.thread_time_ns()
            choose(s, plan, cost)
            took_ns.append(time.thread_time_ns() - start_ns)
    cuts = statistics.quantiles(took_ns, n=100)
    return cuts[49] / 1e3, cuts[98] / 1e3
