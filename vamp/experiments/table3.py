"""Table III: the workloads, how many runs they are, what they cost on GPUs, and whether ours have the printed shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import pandas as pd

from vamp.errors import ClaimError
from vamp.experiments import fig9
from vamp.experiments.parameters import PAPER_PLATFORMS, Parameters
from vamp.experiments.spec import WorkloadSpec
from vamp.report import results
from vamp.report.tables import number
from vamp.report.values import paper_value
from vamp.sim.platforms import load_platform
from vamp.workloads import build_trace
from vamp.workloads.inhouse import TURNS
from vamp.workloads.trace import Trace

NOTEBOOK = "03_table3_workloads"
COVERS = ("table3.*", "sweep.*", "setup.swe_tasks", "setup.ratios_*", "setup.lmcache_*", "setup.replay_*",
          "fig7.sessions", "fig8.last_turn", "fig8.min_sessions", "headline.trace_turns")  # fmt: skip
SIX_HOURS_S = 6 * 3600.0  # section VI-B: the cap of a closed-loop run


class Params(Parameters):
    """Only the engine: the matrix is the paper's."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One row of the matrix.

    Attributes:
        configurations: systems times loads. runs: per configuration.
        run_s: how long one run takes on the paper's GPUs, seconds; NaN where the paper does not let one say.
        basis: where run_s is from.
    """

    workload: str
    platform: str
    configurations: int
    runs: int
    run_s: float
    basis: str
    notebooks: str

    @property
    def n_runs(self) -> int:
        return self.configurations * self.runs

    @property
    def gpu_hours(self) -> float:
        return self.n_runs * self.run_s / 3600 * load_platform(self.platform).gpus


def matrix() -> list[Experiment]:
    """Every run of the paper's evaluation, from the printed counts."""
    h100, h200 = PAPER_PLATFORMS
    n = {key: int(paper_value(f"table3.{key}.n").value) for key in _KEYS}
    window_s = 60.0 * float(paper_value("setup.lmcache_window").value)
    replay_s = float(paper_value("headline.trace_turns").value) / float(
        paper_value("table4.vllm.request_throughput").value
    )
    lmcache = (1 + _count("setup.ratios_lmcache")) * _count("setup.lmcache_sessions")
    sweeps = {name: (1 + _count("setup.ratios_sweep")) * len(fig9.paper_sweep(name)) for name in (h100, h200)}
    closed = ("SWE-agent Heavy-48", h100, 2, n["swe_agent_heavy48"], SIX_HOURS_S, "cap of six hours", "Fig. 6")
    replay = ("SWE-agent replay", h100, 1 + _count("setup.ratios_replay"), n["swe_agent_replay"], replay_s)
    return [
        Experiment(*closed),
        Experiment(*replay, "2,103 turns at vLLM's 0.596 requests/s", "Table IV, Figs. 7, 8, 10"),
        Experiment("LMCache trace", h100, lmcache, n["lmcache_trace"], window_s, "window of 60 minutes", "VI-B"),
        *(
            Experiment("In-house multi-turn", name, cells, n["inhouse_multiturn"], nan, "not printed", "Figs. 1(b), 9")
            for name, cells in sweeps.items()
        ),
    ]


_KEYS = ("swe_agent_heavy48", "swe_agent_replay", "lmcache_trace", "inhouse_multiturn")


def _count(value_id: str) -> int:
    return len(paper_value(value_id).value)


def table(experiments: list[Experiment]) -> pd.DataFrame:
    """The matrix with run counts and GPU-hours."""
    return pd.DataFrame(
        {
            "workload": [e.workload for e in experiments],
            "platform": [e.platform for e in experiments],
            "configurations": [e.configurations for e in experiments],
            "n": [e.runs for e in experiments],
            "runs": [e.n_runs for e in experiments],
            "one run, min": [number(e.run_s / 60) for e in experiments],
            "GPU-hours": [number(e.gpu_hours) for e in experiments],
            "basis": [e.basis for e in experiments],
            "for": [e.notebooks for e in experiments],
        }
    )


def statistics() -> pd.DataFrame:
    """What the generators make, against the counts that the paper prints: columns quantity, paper, here, holds."""
    replay = _trace(WorkloadSpec(kind="replay"))
    last, fewer = int(paper_value("fig8.last_turn").value), int(paper_value("fig8.min_sessions").value)
    expected = [
        ("replay: sessions", paper_value("fig7.sessions").value, len(replay.sessions)),
        ("replay: turns", paper_value("headline.trace_turns").value, replay.n_turns),
        (f"replay: sessions with turn {last}", f">= {fewer}", reaching(replay, last)),
        (f"replay: sessions with turn {last + 1}", f"< {fewer}", reaching(replay, last + 1)),
    ]
    for c in fig9.paper_sweep(PAPER_PLATFORMS[0]):
        made = _trace(WorkloadSpec(kind="inhouse", concurrency=c))
        expected.append((f"in-house, c = {c}: turns", c * TURNS, made.n_turns))
    rows = [(what, str(paper), here, _holds(paper, here)) for what, paper, here in expected]
    return pd.DataFrame(rows, columns=["quantity", "paper", "here", "holds"])


def _trace(workload: WorkloadSpec) -> Trace:
    pl = load_platform(PAPER_PLATFORMS[0])
    return build_trace(workload, seed=0, growth_tok=pl.inhouse_growth_tok, output_tok=pl.inhouse_output_tok)


def reaching(trace: Trace, turn: int) -> int:
    """Sessions that have that turn, counted from 0."""
    return sum(len(s.turns) > turn for s in trace.sessions)


def _holds(paper: object, here: int) -> bool:
    match str(paper).split():
        case [">=", least]:
            return here >= int(least)
        case ["<", limit]:
            return here < int(limit)
        case _:
            return paper == here


def check(found: pd.DataFrame) -> str:
    """One line when every statistic holds.

    Raises:
        ClaimError: names those that do not.
    """
    wrong = found[~found["holds"]]
    if len(wrong):
        named = "; ".join(f"{r['quantity']} is {r['here']}, paper {r['paper']}" for r in wrong.to_dict("records"))
        raise ClaimError(f"the workloads are not the paper's: {named}; see vamp/workloads/assumptions.py")
    return f"{len(found)} of {len(found)} statistics as printed"


def save(p: Params, experiments: list[Experiment]) -> results.Results:
    """Set-up values are cited; what the matrix gives is in `summaries`."""
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        summaries=table(experiments),
    )
