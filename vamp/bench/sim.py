"""How fast and how big a simulation is: the 2,103-turn stand-in replay, plain and with VAMP-15."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

from vamp.bench.process import fresh
from vamp.experiments.spec import RunSpec, make_spec

RATIOS_PCT = (0.0, 15.0)
LIMIT_WALL_S = 30.0
LIMIT_RSS_GIB = 1.5
_KIB_PER_GIB = 2**20


@dataclass(frozen=True, slots=True)
class SimSpeed:
    """One replay: virtual time, real time after imports, scheduler steps, and the process's peak memory."""

    ratio_pct: float
    virtual_s: float
    wall_s: float
    steps: int
    peak_rss_gib: float

    @property
    def virtual_per_real(self) -> float:
        return self.virtual_s / self.wall_s

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.wall_s

    @property
    def within(self) -> bool:
        return self.wall_s <= LIMIT_WALL_S and self.peak_rss_gib <= LIMIT_RSS_GIB


def measure() -> list[SimSpeed]:
    """One run per ratio, not from the store, each in a fresh process."""
    return [fresh(_time, make_spec(ratio_pct=ratio, workload={"kind": "replay"})) for ratio in RATIOS_PCT]


def _time(spec: RunSpec) -> SimSpeed:
    import vamp.sim.engine  # noqa: F401  vLLM's import is not the simulator's speed
    from vamp.sim.run import run_spec

    start_s = time.perf_counter()
    meta = run_spec(spec).meta
    wall_s = time.perf_counter() - start_s
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    return SimSpeed(spec.ratio_pct, meta["virtual_s"], wall_s, meta["steps"], peak_kib / _KIB_PER_GIB)
