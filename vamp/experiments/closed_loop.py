"""Fig. 6: agents in closed loop for hours, vLLM beside VAMP-r."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from vamp.experiments.frames import group_rows, run_rows
from vamp.experiments.parameters import OnePlatform, Ratio, RunParameters, find_platform
from vamp.experiments.spec import RunSpec, make_spec
from vamp.live.platform import load_live_platform
from vamp.measure.bins import binned
from vamp.measure.records import RunResult
from vamp.report import results, theme
from vamp.report.figures import closed_loop_bins
from vamp.report.tables import number, with_sd
from vamp.report.theme import SavedFigure
from vamp.report.verdicts import Measured
from vamp.workloads.agents import AgentAssumptions

NOTEBOOK = "08_fig6_closed_loop"
COVERS = ("closed.*", "fig6.*", "setup.swe_tasks")
PAPER_HOURS, PAPER_RATIO_PCT = 6.0, 15.0
HOUR_S, BIN_S = 3600.0, 1800.0
LEAST_HOURS = 2.0  # steady from the second hour on, so that the final half hour is typical
STATES = ("kv_util", "waiting", "preemptions", "ttft_mean_s")
_LABELS = {
    "kv_util": "KV-cache utilisation",
    "waiting": "waiting requests",
    "preemptions": "preemptions",
    "ttft_mean_s": "mean TTFT, s",
}
_FINAL = {"kv_util": "kv_util", "waiting": "waiting", "preemptions": "preemptions", "ttft_mean": "ttft_mean_s"}


class Params(RunParameters):
    """`hours`: of virtual time; on a live server that span divided as the platform says."""

    backends = ("sim", "cpu")

    platform: OnePlatform = "h100_pcie_tp2"
    ratio: Ratio = PAPER_RATIO_PCT
    hours: Annotated[float, Field(gt=0, le=48)] = 3.0

    @property
    def system(self) -> str:
        return f"VAMP-{self.ratio:g}"

    @property
    def span(self) -> str:
        """How long the runs last, for titles."""
        if self.backend == "cpu":
            return f"{self.hours:g} h / {self._divisor:g}"
        return f"{self.hours:g} of the paper's {PAPER_HOURS:g} hours" if self.hours < PAPER_HOURS else "six hours"

    @property
    def _divisor(self) -> float:
        return load_live_platform(self.platform).replay.time_divisor if self.backend == "cpu" else 1.0

    @property
    def run_s(self) -> float:
        """Length of a run on its own clock."""
        return self.hours * HOUR_S / self._divisor

    @property
    def bin_s(self) -> float:
        """Half an hour on that clock."""
        return BIN_S / self._divisor

    @property
    def why_not(self) -> str:
        short = f"{self.hours:g} h of six" if self.hours < LEAST_HOURS else ""
        return super().why_not or short

    @property
    def note(self) -> str:
        return f"run of {self.hours:g} h instead of six" if self.hours != PAPER_HOURS else ""


def spec(p: Params, ratio_pct: float, seed: int) -> RunSpec:
    workload = {"kind": "agents", "scale": p.scale}
    return make_spec(
        backend=p.backend,
        platform=p.platform,
        ratio_pct=ratio_pct,
        seed=seed,
        workload=workload,
        max_virtual_s=p.run_s,
    )


def specs(p: Params) -> list[RunSpec]:
    """vLLM and VAMP-r for every seed."""
    return [spec(p, ratio, seed) for ratio in (0.0, p.ratio) for seed in p.seeds]


def bins(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per run and half hour: system, seed, and the columns of `measure.bins.binned`."""
    frames = [
        binned(run, p.bin_s, p.run_s).assign(system=s.system, seed=s.seed) for s, run in zip(specs, runs, strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


def table(p: Params, rows: pd.DataFrame) -> pd.DataFrame:
    """The states of the first bin, the middle one and the last, a column per system."""
    starts = sorted(rows["start_s"].unique())
    chosen = {"first": starts[0], "middle": starts[len(starts) // 2], "final": starts[-1]}
    out = []
    for state, label in _LABELS.items():
        for when, start_s in chosen.items():
            at = rows[rows["start_s"] == start_s].groupby("system", sort=False)[state].agg(["mean", "std"])
            cells = {name: with_sd(float(c["mean"]), float(c["std"])) for name, c in at.to_dict("index").items()}
            out.append({"per half hour": label, "bin": when, **cells})
    return pd.DataFrame(out)


def turns_table(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """What the agents did: trajectories part, so these differ between systems and are not compared."""
    rows = []
    for s, run in zip(specs, runs, strict=True):
        q = run.requests
        rows.append(
            {
                "system": s.system,
                "seed": s.seed,
                "turns": len(q),
                "tasks begun": q["session_id"].nunique(),
                "mean prompt, tokens": number(float(q["prompt_tok"].mean())),
                "preemptions": len(run.preemption_s),
                "offloaded at the end, groups": run.meta["n_groups_max"],
            }
        )
    return pd.DataFrame(rows)


def assumptions() -> pd.DataFrame:
    """Every assumption about the agents and its value; vamp/workloads/agents.py says from what each was chosen."""
    given = AgentAssumptions()
    return pd.DataFrame(
        [(name, getattr(given, name)) for name in AgentAssumptions.__slots__], columns=["name", "value"]
    )


def measured(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult], rows: pd.DataFrame) -> list[Measured]:
    """Values of Fig. 6 and of the text; none of a scaled or a live workload, or of one too short to be steady."""
    if p.why_not:
        return []
    own = [*_vllm(p, specs, runs, rows), *(_vamp(p, rows) if p.ratio == PAPER_RATIO_PCT else [])]
    return [m for m in own if not isinstance(m.value, float) or math.isfinite(m.value)]


def _vllm(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult], rows: pd.DataFrame) -> list[Measured]:
    own = rows[rows["system"] == "vLLM"]
    summaries = run_rows(*zip(*[(s, r) for s, r in zip(specs, runs, strict=True) if s.system == "vLLM"], strict=True))
    after_first = own[own["start_s"] > 0].groupby("start_s")["preemptions"].mean()
    middle = own[own["start_s"].between(p.run_s / 2, p.run_s - 1)]
    out = [
        *_final(p, "vllm", own),
        _mean("closed.vllm.hit_rate", p, summaries["hit_rate_pct"]),
        _mean("closed.vllm.hit_rate_bound", p, summaries["hit_rate_pct"]),
        _span("fig6.vllm.preemptions_per_bin", p, after_first),
        _mean("fig6.vllm.ttft_first_bin", p, own.loc[own["start_s"] == 0, "ttft_mean_s"]),
        _mean("fig6.vllm.ttft_mid_run", p, middle.groupby("seed")["ttft_mean_s"].mean()),
    ]
    if p.hours == PAPER_HOURS:
        out.append(_mean("closed.vllm.preemptions_total", p, summaries["n_preemptions"]))
    return out


def _vamp(p: Params, rows: pd.DataFrame) -> list[Measured]:
    own = rows[rows["system"] == p.system]
    per_run = own.groupby("seed")
    return [
        *_final(p, "vamp15", own),
        _span("fig6.vamp15.warmup_preemptions", p, per_run["preemptions"].sum()),
        _mean("fig6.vamp15.waiting", p, per_run["waiting"].mean()),
        _mean("fig6.vamp15.ttft", p, per_run["ttft_mean_s"].mean()),
    ]


def _final(p: Params, key: str, own: pd.DataFrame) -> list[Measured]:
    """The run's last half hour."""
    last = own[own["start_s"] == own["start_s"].max()]
    return [_mean(f"closed.final.{key}.{name}", p, last[column]) for name, column in _FINAL.items()]


def _mean(value_id: str, p: Params, per_run: Any) -> Measured:
    sd = float(per_run.std())
    return Measured(
        value_id, p.platform, float(per_run.mean()), sd if math.isfinite(sd) else None, len(per_run), p.note
    )


def _span(value_id: str, p: Params, values: Any) -> Measured:
    return Measured(value_id, p.platform, (float(values.min()), float(values.max())), n=p.repeats, note=p.note)


def figure(p: Params, rows: pd.DataFrame, runs: Sequence[RunResult]) -> SavedFigure:
    """Fig. 6: three states and TTFT per half hour, mean over the seeds."""
    data = rows.groupby(["system", "start_s"], sort=False)[list(STATES)].mean().reset_index()
    data["middle_h"] = (data["start_s"] + p.bin_s / 2) / p.bin_s * 0.5
    note = str(runs[0].meta["label"])
    where = theme.origin(p.backend, scale=p.scale, note=f"{note}; n = {p.repeats}")
    heading = f"Fig. 6: closed loop, {p.span}, {find_platform(p.platform).title}"
    fig = closed_loop_bins(data, heading=heading, where=where)
    return theme.save_figure(fig, data, notebook=NOTEBOOK, name="closed_loop", backend=p.backend)


def save(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult], rows: pd.DataFrame) -> results.Results:
    """Write the results file and every bin."""
    results.save_frame(NOTEBOOK, "bins", p.backend, rows)
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, specs, runs, rows),
        summaries=group_rows(run_rows(specs, runs)),
        why_not=p.why_not or "counted over six hours; run with --full",
    )
