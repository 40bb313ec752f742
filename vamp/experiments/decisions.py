"""Section VI-D: what the controller decided in two runs of the H200 sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from vamp.errors import InvariantError
from vamp.experiments import fig9
from vamp.experiments.parameters import Concurrencies, OnePlatform, Ratio, RunParameters, find_platform
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.memory.geometry import GIB
from vamp.report import results, theme
from vamp.report.figures import decision_scores
from vamp.report.theme import SavedFigure
from vamp.report.verdicts import Measured

NOTEBOOK = "13_decisions"
COVERS = ("decisions.*",)
PAPER_PLATFORM, PAPER_RATIO_PCT = "h200_nvl_tp4", 20.0
COST_OF = {"evict": "C_c_us", "offload": "C_e_us", "preempt": "C_p_us", "offload_evict": "C_b_us"}


class Params(RunParameters):
    backends = ("sim", "cuda", "recorded")

    platform: OnePlatform = PAPER_PLATFORM
    ratio: Ratio = PAPER_RATIO_PCT
    concurrency: Concurrencies = (16, 32)

    @property
    def system(self) -> str:
        return f"VAMP-{self.ratio:g}"


def specs(p: Params) -> list[RunSpec]:
    """The sweep's own runs, so that they are executed once."""
    return [fig9.spec(p.backend, p.platform, p.ratio, c, seed, p.scale) for c in p.concurrency for seed in p.seeds]


def decision_rows(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """Every decision of every run, with its concurrency and seed.

    Raises:
        InvariantError: a choice was not the cheapest feasible plan of its record.
    """
    frames = []
    for spec, run in zip(specs, runs, strict=True):
        for record in run.decisions:
            check_cheapest(record)
        frames.append(pd.DataFrame(run.decisions).assign(concurrency=spec.workload.concurrency, seed=spec.seed))
    rows = pd.concat(frames, ignore_index=True)
    return rows.reindex(columns=[*_NEEDED, *[c for c in rows if c not in _NEEDED]])


_NEEDED = ["concurrency", "seed", "t_s", "choice", *COST_OF.values(), "pool_before_blk", "pool_after_blk"]


def check_cheapest(record: dict[str, Any]) -> None:
    """Raises InvariantError unless the choice is the cheapest feasible plan (none where none is feasible)."""
    costs = {plan: record[key] for plan, key in COST_OF.items() if record[key] is not None}
    choice = record["choice"]
    if choice is None and not costs:
        return
    if choice not in costs or costs[choice] > min(costs.values()):
        raise InvariantError(
            f"step {record['step']}, request {record['request_id']}: {choice} was chosen among {costs} us"
        )


def table(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per run: invocations, choices, medians of the two scores among evictions, and the pool."""
    block_gib = find_platform(p.platform, p.backend).kv.block_bytes / GIB
    rows = []
    for spec, run in zip(specs, runs, strict=True):
        c_c, c_e = median_scores_ms(run)
        rows.append(
            {
                "c": spec.workload.concurrency,
                "seed": spec.seed,
                "invocations": invocations(run),
                **{choice: count(run, choice) for choice in COST_OF},
                "median C_c, ms": f"{c_c:.1f}",
                "median C_e, ms": f"{c_e:.1f}",
                "pool at start, GiB": f"{run.timeline['pool_blk'].iloc[0] * block_gib:.2f}",
                "pool at end, GiB": f"{run.timeline['pool_blk'].iloc[-1] * block_gib:.2f}",
                "groups offloaded": run.meta["n_groups_max"],
            }
        )
    return pd.DataFrame(rows)


def invocations(run: RunResult) -> int:
    """How often the controller was asked; a live server logs every time."""
    return int(run.meta.get("invocations", len(run.decisions)))


def count(run: RunResult, choice: str) -> int:
    return sum(record["choice"] == choice for record in run.decisions)


def median_scores_ms(run: RunResult) -> tuple[float, float]:
    """Medians of C_c and C_e over decisions that chose eviction while offloading was feasible; else NaN."""
    both = [r for r in run.decisions if r["choice"] == "evict" and r["C_e_us"] is not None]
    if not both:
        return math.nan, math.nan
    scores = pd.DataFrame(both)[["C_c_us", "C_e_us"]].median() / 1e3
    return float(scores["C_c_us"]), float(scores["C_e_us"])


def measured(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> list[Measured]:
    """Run 1 only (the first seed), as in the paper. A combined plan counts as offloading: experts go."""
    if p.ratio != PAPER_RATIO_PCT or p.scale < 1 or p.uncompared:
        return []
    first = {s.workload.concurrency: run for s, run in zip(specs, runs, strict=True) if s.seed == p.seed}
    values: dict[str, float] = {}
    if 16 in first:
        values["c16.invocations"] = invocations(first[16])
    if 32 in first:
        run = first[32]
        c_c, c_e = median_scores_ms(run)
        values |= {
            "c32.offload": count(run, "offload") + count(run, "offload_evict"),
            "c32.evict": count(run, "evict"),
            "c32.preempt": count(run, "preempt"),
            "c32.median_C_c": c_c,
            "c32.median_C_e": c_e,
        }
    return [Measured(f"decisions.{k}", p.platform, v) for k, v in values.items() if math.isfinite(v)]


def figure(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> SavedFigure:
    """Scores of all decisions that had both plans, and the pool of the first seed's runs."""
    rows = decision_rows(specs, runs)
    both = rows.dropna(subset=["C_c_us", "C_e_us", "choice"])
    scores = pd.DataFrame({"C_c_ms": both["C_c_us"] / 1e3, "C_e_ms": both["C_e_us"] / 1e3, "choice": both["choice"]})
    block_gib = find_platform(p.platform, p.backend).kv.block_bytes / GIB
    pool = pd.concat(
        [
            pd.DataFrame(
                {
                    "run": f"c = {s.workload.concurrency}",
                    "t_s": run.timeline["t_s"],
                    "pool_gib": run.timeline["pool_blk"] * block_gib,
                }
            )
            for s, run in zip(specs, runs, strict=True)
            if s.seed == p.seed
        ],
        ignore_index=True,
    )
    heading = f"VI-D: decisions of {p.system}, {find_platform(p.platform, p.backend).title}"
    fig = decision_scores(scores, pool, heading=heading, where=theme.origin(p.backend, scale=p.scale, note=p.note))
    return theme.save_figure(fig, scores, notebook=NOTEBOOK, name="scores", backend=p.backend)


def save(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> results.Results:
    """Write the results file and every decision."""
    results.save_frame(NOTEBOOK, "decisions", p.backend, decision_rows(specs, runs))
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, specs, runs),
        summaries=table(p, specs, runs),
        why_not=p.why_not or "no such decision, or not among the runs asked for",
    )
