"""The LMCache trace (section VI-B): a second recorded workload over a fixed window, at two loads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator, Field

from vamp.experiments.frames import find, group_rows, request_rows, run_rows
from vamp.experiments.parameters import Concurrencies, OnePlatform, Ratios, RunParameters, find_platform
from vamp.experiments.replays import existing_trace
from vamp.experiments.spec import RunSpec, make_spec
from vamp.measure import latency
from vamp.measure.records import RunResult
from vamp.measure.stats import estimate
from vamp.report import results, theme
from vamp.report.figures import load_tradeoff
from vamp.report.tables import with_sd
from vamp.report.theme import SavedFigure
from vamp.report.values import load_values
from vamp.report.verdicts import Measured

NOTEBOOK = "12_lmcache_trace"
COVERS = ("lmcache.*", "setup.lmcache_*", "setup.ratios_lmcache")
PAPER_RATIOS, PAPER_SESSIONS, PAPER_MINUTES = (0.0, 15.0, 20.0), (64, 128), 60.0
COMPARABLE_PCT = 25.0  # TTFT p99 of VAMP-20 and VAMP-15 that lie this near to each other count as comparable
METRICS = (  # part of the value id, column of the cells, label
    ("ttft_p99", "ttft_p99_s", "TTFT p99, s"),
    ("preemptions", "n_preemptions", "preemptions"),
    ("tps", "output_tokens_per_s", "output tokens per s"),
    ("tpot", "tpot_ms", "TPOT, ms"),
    ("completed", "completed_pct", "turns completed, %"),
)
_SYSTEMS = {"vllm": "vLLM", "vamp15": "VAMP-15", "vamp20": "VAMP-20"}


class Params(RunParameters):
    """`trace`: the public recording (a folder) instead of the stand-in. `sessions`: how many run at once."""

    platform: OnePlatform = "h100_pcie_tp2"
    ratios: Ratios = PAPER_RATIOS
    sessions: Concurrencies = PAPER_SESSIONS
    minutes: Annotated[float, Field(gt=0, le=24 * 60)] = PAPER_MINUTES
    trace: Annotated[str, AfterValidator(existing_trace)] = ""

    @property
    def why_not(self) -> str:
        short = f"a window of {self.minutes:g} minutes instead of 60" if self.minutes != PAPER_MINUTES else ""
        return super().why_not or short


def spec(p: Params, ratio_pct: float, sessions: int, seed: int) -> RunSpec:
    workload: dict[str, Any] = {"kind": "lmcache", "concurrency": sessions, "scale": p.scale}
    if p.trace:
        workload = {"kind": "trace", "trace_path": p.trace, "sessions": max(2, round(sessions * p.scale))}
    return make_spec(
        backend=p.backend,
        platform=p.platform,
        ratio_pct=ratio_pct,
        seed=seed,
        workload=workload,
        max_virtual_s=60 * p.minutes,
    )


def specs(p: Params) -> list[RunSpec]:
    """Every load, ratio and seed."""
    return [spec(p, ratio, n, seed) for n in p.sessions for ratio in p.ratios for seed in p.seeds]


def cells(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per load and system; `concurrency` is the number of sessions, completed_pct has its own spread."""
    done = [100.0 * len(latency.finished(run.requests)) / int(run.meta["n_turns"]) for run in runs]
    rows = run_rows(specs, runs).assign(
        concurrency=[_load(s) for s in specs], completed_pct=done, n_turns=[int(run.meta["n_turns"]) for run in runs]
    )
    grouped = group_rows(rows)
    by_key = rows.groupby(["platform", "system", "concurrency"], sort=False)["completed_pct"]
    estimates = [estimate(values.astype(float)) for _, values in by_key]
    return grouped.assign(completed_pct=[e.mean for e in estimates], completed_pct_sd=[e.sd for e in estimates])


def _load(s: RunSpec) -> int:
    return s.workload.sessions or s.workload.concurrency or 0


def table(cells: pd.DataFrame) -> pd.DataFrame:
    """A row per load and metric: ours, and in brackets the paper's where it prints one."""
    rows = []
    for sessions in cells["concurrency"].unique():
        for key, column, label in METRICS:
            row: dict[str, Any] = {"sessions": sessions, "metric": label}
            for cell in cells[cells["concurrency"] == sessions].to_dict("records"):
                row[cell["system"]] = _beside_paper(cell, key, column)
            rows.append(row)
    return pd.DataFrame(rows).fillna("")


def _beside_paper(cell: dict[str, Any], key: str, column: str) -> str:
    system = {name: short for short, name in _SYSTEMS.items()}.get(cell["system"], "")
    paper = load_values().get(f"lmcache.{cell['concurrency']}.{system}.{key}")
    ours = with_sd(cell[column], cell[f"{column}_sd"])
    return f"{ours} [{with_sd(paper.value, paper.sd)}]" if paper is not None else ours


def measured(p: Params, cells: pd.DataFrame) -> list[Measured]:
    """Every printed number whose load and system were run; none of a scaled workload or another window."""
    if p.why_not:
        return []
    note = "the public recording" if p.trace else ""
    out = []
    for sessions in p.sessions:
        for short, system in _SYSTEMS.items():
            cell = find(cells, p.platform, system, sessions)
            for key, column, _ in METRICS if cell is not None else ():
                value_id = f"lmcache.{sessions}.{short}.{key}"
                if value_id in load_values() and cell is not None and math.isfinite(cell[column]):
                    sd = float(cell[f"{column}_sd"])
                    spread = sd if math.isfinite(sd) else None
                    out.append(Measured(value_id, p.platform, float(cell[column]), spread, int(cell["n"]), note))
    return [*out, *_qualitative(p, cells)]


def _qualitative(p: Params, cells: pd.DataFrame) -> list[Measured]:
    """At 128 sessions VAMP-20's TTFT p99 is comparable to VAMP-15's, its TPOT higher, its throughput lower."""
    less, more = (find(cells, p.platform, system, 128) for system in ("VAMP-15", "VAMP-20"))
    if less is None or more is None:
        return []
    holds = (
        abs(more["ttft_p99_s"] / less["ttft_p99_s"] - 1) * 100 <= COMPARABLE_PCT
        and more["tpot_ms"] > less["tpot_ms"]
        and more["output_tokens_per_s"] < less["output_tokens_per_s"]
    )
    note = f"comparable: within {COMPARABLE_PCT:g} %"
    return [Measured("lmcache.128.vamp20.qualitative", p.platform, bool(holds), n=int(less["n"]), note=note)]


def figure(p: Params, cells: pd.DataFrame, runs: Sequence[RunResult]) -> SavedFigure:
    columns = [c for _, column, _ in METRICS for c in (column, f"{column}_sd")]
    data = cells[["system", "concurrency", *columns]].rename(columns={"concurrency": "sessions"})
    note = f"{runs[0].meta['label'].partition(', ')[0]}; n = {p.repeats}"
    where = theme.origin(p.backend, scale=p.scale, note=note)
    window = f"{p.minutes:g} minutes" + ("" if p.minutes == PAPER_MINUTES else f" of the paper's {PAPER_MINUTES:g}")
    fig = load_tradeoff(data, heading=f"LMCache trace, {window}, {find_platform(p.platform).title}", where=where)
    return theme.save_figure(fig, data, notebook=NOTEBOOK, name="tradeoff", backend=p.backend)


def save(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult], cells: pd.DataFrame) -> results.Results:
    """Write the results file and every request."""
    results.save_frame(NOTEBOOK, "requests", p.backend, request_rows(specs, runs))
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, cells),
        summaries=cells,
        why_not=p.why_not or "not among the loads and ratios asked for",
    )
