"""The 2,103-turn replay that Table IV and Figs. 7, 8 and 10 share: its parameters, its runs, its requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator

from vamp.errors import ConfigError
from vamp.experiments.frames import request_rows
from vamp.experiments.parameters import OnePlatform, Ratios, Repeats, RunParameters
from vamp.experiments.spec import RunSpec, make_spec
from vamp.measure import latency
from vamp.measure.records import RunResult
from vamp.measure.stats import estimate
from vamp.report import theme


def existing_trace(path: str) -> str:
    if path and not Path(path).exists():
        raise ConfigError(f"trace {path} does not exist; give a file or a folder, or nothing for the stand-in")
    return str(Path(path).resolve()) if path else ""


class ReplayParameters(RunParameters):
    """`trace`: a recorded trace instead of the stand-in."""

    backends = ("sim", "cpu", "cuda", "recorded")

    platform: OnePlatform = "h100_pcie_tp2"
    repeats: Repeats = 2
    trace: Annotated[str, AfterValidator(existing_trace)] = ""

    @property
    def why_not(self) -> str:
        return "another trace than the paper's" if self.trace else super().why_not


class ComparisonParameters(ReplayParameters):
    """`ratios`: offloading caps in percent; 0 is plain vLLM."""

    ratios: Ratios

    def needs(self, *ratios: float) -> str:
        """Why nothing is compared with the paper, the lack of one of these ratios included."""
        lacking = [f"{r:g}" for r in ratios if r not in self.ratios]
        return self.why_not or (f"ratio {', '.join(lacking)} was not run" if lacking else "")


def spec(p: ReplayParameters, ratio_pct: float, seed: int, **changes: Any) -> RunSpec:
    """One run. `changes` go to the spec; `overrides` among them to the workload."""
    overrides = changes.pop("overrides", {})
    workload: dict[str, Any] = {"kind": "replay", "scale": p.scale, "overrides": overrides}
    if p.trace:
        workload = {"kind": "trace", "scale": p.scale, "trace_path": p.trace}
    return make_spec(
        backend=p.backend, platform=p.platform, ratio_pct=ratio_pct, seed=seed, workload=workload, **changes
    )


def specs(p: ReplayParameters, ratios: Sequence[float]) -> list[RunSpec]:
    """Every ratio and seed; the same runs as Table IV's where ratio and seed are."""
    return [spec(p, ratio, seed) for ratio in ratios for seed in p.seeds]


def is_stand_in(runs: Sequence[RunResult]) -> bool:
    return any(run.meta.get("stand_in") for run in runs)


def where(p: ReplayParameters, runs: Sequence[RunResult]) -> str:
    """Second line of a figure's title: engine, trace, scale."""
    label = "" if is_stand_in(runs) and p.backend == "sim" else str(runs[0].meta.get("label", ""))
    note = "; ".join(part for part in (p.note, label) if part)
    return theme.origin(p.backend, stand_in=is_stand_in(runs), scale=p.scale, note=note)


def finished_rows(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """Every finished request of every run, whole trace, with ttft_s and tpot_ms (NaN for a one-token reply)."""
    rows = latency.finished(request_rows(specs, runs))
    first, last = (pd.to_numeric(rows[c]) for c in ("first_token_s", "finish_s"))
    intervals = (rows["output_tok"] - 1).where(rows["output_tok"] >= 2)
    return rows.assign(ttft_s=first - rows["arrival_s"], tpot_ms=(last - first) / intervals * 1e3)


def ttft_by(rows: pd.DataFrame, column: str, percent: float) -> pd.DataFrame:
    """A percentile of TTFT per value of `column`: of each run, then mean and SD over runs.

    Returns:
        One row per system and value: system, `column`, ttft_s, sd, n (runs), sessions (mean over runs).
    """
    out = []
    for (system, value), group in rows.groupby(["system", column], sort=False):
        by_run = group.groupby("seed")
        found = estimate(by_run["ttft_s"].quantile(percent / 100))
        sessions = float(by_run["session_id"].nunique().mean())
        out.append((system, value, found.mean, found.sd, found.n, sessions))
    table = pd.DataFrame(out, columns=["system", column, "ttft_s", "sd", "n", "sessions"])
    return table.sort_values(["system", column], ignore_index=True)
