"""Table IV: the 2,103-turn replay under vLLM and VAMP-r, on identical requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from vamp.experiments import replays
from vamp.experiments.frames import find, group_rows, request_rows, run_rows
from vamp.experiments.parameters import Ratio, find_platform
from vamp.experiments.replays import ReplayParameters, where
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.measure.window import window_for
from vamp.memory.geometry import GIB
from vamp.report import results, theme
from vamp.report.figures import timeline, ttft_cdf
from vamp.report.tables import number, with_sd
from vamp.report.theme import SavedFigure
from vamp.report.values import paper_value
from vamp.report.verdicts import Measured

NOTEBOOK = "07_table4_replay"
COVERS = ("table4.*", "headline.ttft_p90.*", "headline.request_throughput.change", "headline.tpot.change",
          "headline.trace_turns", "replay.*", "setup.replay_*")  # fmt: skip
PAPER_RATIO_PCT = 15.0
FACTOR, PERCENT, POINTS = "x lower", "%", "pp"
METRICS = (  # id, column of the summary, label, how the paper states the difference
    ("request_throughput", "requests_per_s", "request throughput, req/s", PERCENT),
    ("ttft_p90", "ttft_p90_s", "TTFT p90, s", FACTOR),
    ("ttft_p99", "ttft_p99_s", "TTFT p99, s", FACTOR),
    ("queue_mean", "queue_mean_s", "mean queue time, s", PERCENT),
    ("preemptions_per_1k", "preemptions_per_1k", "preemptions per 1k turns", PERCENT),
    ("hit_rate", "hit_rate_pct", "prefix-cache hit rate (server counters), %", POINTS),
    ("tpot", "tpot_ms", "TPOT, ms", PERCENT),
)
EXTRA = (  # not in the paper's table
    ("hit_rate_per_request_pct", "hit rate from cached tokens per request, %"),
    ("output_tokens_per_s", "output tokens per s"),
    ("boundary_ratio_pct_mean", "mean offloaded share of the experts, %"),
)
_TIMELINE_BINS = 60


class Params(ReplayParameters):
    """`sensitivity`: also vary each assumption by 20 %."""

    ratio: Ratio = PAPER_RATIO_PCT
    sensitivity: bool = False

    @property
    def system(self) -> str:
        return f"VAMP-{self.ratio:g}"

    @property
    def why_not(self) -> str:
        return super().why_not or (f"VAMP-{self.ratio:g} was run" if self.ratio != PAPER_RATIO_PCT else "")


def specs(p: Params) -> list[RunSpec]:
    """vLLM and VAMP-r for every seed."""
    return replays.specs(p, (0.0, p.ratio))


def cells(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per system, mean and SD over runs."""
    return group_rows(run_rows(specs, runs))


def difference(kind: str, base: float, own: float) -> float:
    """As the paper states it: a factor by which it is lower, percent of change, or percentage points."""
    if kind == POINTS:
        return own - base
    if kind == FACTOR:
        return base / own if own else math.nan
    return (own - base) / base * 100 if base else math.nan


def table(p: Params, cells: pd.DataFrame) -> pd.DataFrame:
    """Table IV, and the paper's beside it."""
    base, own = _systems(p, cells)
    rows = []
    for key, column, label, kind in METRICS:
        change = difference(kind, base[column], own[column])
        printed = {s: paper_value(f"table4.{s}.{key}") for s in ("vllm", "vamp15", "diff")}
        rows.append(
            {
                "metric": label,
                "vLLM": with_sd(base[column], base[f"{column}_sd"]),
                p.system: with_sd(own[column], own[f"{column}_sd"]),
                "difference": _stated(change, kind),
                "paper vLLM": with_sd(printed["vllm"].value, printed["vllm"].sd),
                "paper VAMP-15": with_sd(printed["vamp15"].value, printed["vamp15"].sd),
                "paper difference": _stated(printed["diff"].value, kind),
            }
        )
    for column, label in EXTRA:
        pair = {"vLLM": number(base[column]), p.system: number(own[column])}
        rows.append({"metric": label} | pair)
    return pd.DataFrame(rows).fillna("")


def _stated(change: float, kind: str) -> str:
    if not math.isfinite(change):
        return "n/a"
    return f"{number(change)}{kind}" if kind == FACTOR else f"{change:+.4g} {kind}"


def _systems(p: Params, cells: pd.DataFrame) -> tuple[dict[str, Any], dict[str, Any]]:
    base, own = find(cells, p.platform, "vLLM"), find(cells, p.platform, p.system)
    assert base is not None and own is not None  # specs() asks for both
    return base, own


def measured(p: Params, cells: pd.DataFrame) -> list[Measured]:
    """Values of Table IV and of the sentences that repeat them. A replay of something else measures none."""
    if p.trace or p.scale < 1 or p.uncompared:
        return []
    base, own = _systems(p, cells)
    out = []
    for key, column, _, kind in METRICS:
        out.append(_one(f"table4.vllm.{key}", p, base, column))
        if p.ratio == PAPER_RATIO_PCT:
            out.append(_one(f"table4.vamp15.{key}", p, own, column))
            change = difference(kind, base[column], own[column])
            out.append(Measured(f"table4.diff.{key}", p.platform, change, n=base["n"]))
    known = {m.id: m for m in out}
    for alias, of, factor in _ALIASES:
        if of in known:
            m = known[of]
            sd = m.sd * factor if m.sd is not None else None
            out.append(Measured(alias, p.platform, _number(m.value) * factor, sd, m.n))
    return [m for m in out if math.isfinite(_number(m.value))]


_ALIASES = (
    ("headline.ttft_p90.vllm", "table4.vllm.ttft_p90", 1),
    ("headline.ttft_p90.vamp15", "table4.vamp15.ttft_p90", 1),
    ("headline.ttft_p90.factor", "table4.diff.ttft_p90", 1),
    ("headline.request_throughput.change", "table4.diff.request_throughput", 1),
    ("headline.tpot.change", "table4.diff.tpot", 1),
    ("replay.vamp15.queue_mean_ms", "table4.vamp15.queue_mean", 1000),
)


def _number(x: object) -> float:
    return float(x) if isinstance(x, int | float) else math.nan


def _one(value_id: str, p: Params, cell: dict[str, Any], column: str) -> Measured:
    sd = float(cell[f"{column}_sd"])
    return Measured(value_id, p.platform, float(cell[column]), sd if math.isfinite(sd) else None, int(cell["n"]))


def cdf_figure(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> SavedFigure:
    """TTFT of the requests that arrive in the measurement interval, all seeds together."""
    parts = []
    for s, run in zip(specs, runs, strict=True):
        timed = window_for(run, s).timed(run.requests)
        ttft = pd.to_numeric(timed["first_token_s"]) - timed["arrival_s"]
        parts.append(pd.DataFrame({"system": s.system, "seed": s.seed, "ttft_s": ttft.dropna()}))
    data = pd.concat(parts, ignore_index=True)
    fig = ttft_cdf(
        data, heading=f"TTFT in the replay, {find_platform(p.platform, p.backend).title}", where=where(p, runs)
    )
    return theme.save_figure(fig, data, notebook=NOTEBOOK, name="ttft_cdf", backend=p.backend)


def timeline_figure(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> SavedFigure:
    """Pool, hit rate and preemptions of the first seed; shaded is vLLM's measurement interval."""
    chosen = [(s, run) for s, run in zip(specs, runs, strict=True) if s.seed == p.seed]
    data = pd.concat([_binned(s, run) for s, run in chosen], ignore_index=True)
    window = window_for(chosen[0][1], chosen[0][0])
    shaded = (window.start_s, window.end_s) if window.name == "interval" else None
    heading = f"Pool, cache and preemptions in the replay, seed {p.seed}"
    fig = timeline(data, shaded, heading=heading, where=where(p, runs))
    return theme.save_figure(fig, data, notebook=NOTEBOOK, name="timeline", backend=p.backend)


def _binned(spec: RunSpec, run: RunResult) -> pd.DataFrame:
    """The timeline cut into equal bins: pool and preemptions at the end of each, hit rate inside each."""
    line = run.timeline
    edges = pd.cut(line["t_s"], _TIMELINE_BINS, labels=False)
    last = line.groupby(edges).last()
    before = last[["hits_tok", "queries_tok"]].shift(fill_value=0)
    hits, queries = (last[c] - before[c] for c in ("hits_tok", "queries_tok"))
    block_gib = find_platform(spec.platform, spec.backend).kv.block_bytes / GIB
    return pd.DataFrame(
        {
            "system": spec.system,
            "t_s": last["t_s"],
            "pool_gib": last["pool_blk"] * block_gib,
            "hit_pct": (100.0 * hits / queries).where(queries > 0),
            "preemptions": last["preemptions"],
        }
    )


def save(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult], cells: pd.DataFrame) -> results.Results:
    """Write the results file and every request."""
    results.save_frame(NOTEBOOK, "requests", p.backend, request_rows(specs, runs))
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, cells),
        summaries=cells,
        why_not=p.why_not,
    )
