"""Fig. 10(a): what each offloading ratio buys in TTFT, and costs in throughput and TPOT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from vamp.experiments import replays
from vamp.experiments.frames import find, group_rows, run_rows
from vamp.experiments.parameters import Ratios, find_platform
from vamp.experiments.replays import ComparisonParameters
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.report import results, theme
from vamp.report.figures import ratio_tradeoff
from vamp.report.rules import load_rules
from vamp.report.tables import with_sd
from vamp.report.theme import SavedFigure
from vamp.report.verdicts import Measured

NOTEBOOK = "14_fig10a_ratio_tradeoff"
COVERS = ("fig10a.*",)
PAPER_RATIOS = (0.0, 10.0, 15.0, 20.0)
METRICS = {
    "ttft_p90_s": "TTFT p90 (s)",
    "ttft_p99_s": "TTFT p99 (s)",
    "requests_per_s": "throughput (requests/s)",
    "tpot_ms": "TPOT (ms)",
    "hit_rate_per_request_pct": "prompt tokens from the cache (%)",
    "preemptions_per_1k": "preemptions per 1,000 turns",
    "boundary_ratio_pct_mean": "experts offloaded, mean (%)",
}
SHOWN = ("ttft_p90_s", "requests_per_s", "tpot_ms")


class Params(ComparisonParameters):
    ratios: Ratios = PAPER_RATIOS


def specs(p: Params) -> list[RunSpec]:
    """Every ratio and seed; those of vLLM and VAMP-15 are Table IV's."""
    return replays.specs(p, p.ratios)


def cells(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per system, mean and SD over runs."""
    return group_rows(run_rows(specs, runs))


def table(cells: pd.DataFrame) -> pd.DataFrame:
    """A row per metric, a column per system. The paper prints no numbers here."""
    columns = {
        str(row["system"]): [with_sd(row[c], row[f"{c}_sd"]) for c in METRICS] for row in cells.to_dict("records")
    }
    return pd.DataFrame(columns, index=pd.Index(list(METRICS.values()), name="metric"))


def comparable(a: float, b: float) -> bool:
    """The two differ by no more than the tolerance of ratios allows, in percent of the second."""
    return abs(a - b) <= load_rules().limits.ratio_pct / 100 * abs(b)


def statements(p: Params, cells: pd.DataFrame) -> dict[str, bool]:
    """The three sentences of the text, by value id: True where they hold of these means."""
    rows: dict[str, dict[str, Any]] = {f"{r:g}": find(cells, p.platform, name(r)) or {} for r in PAPER_RATIOS}
    p90, rate, tpot = ({r: float(row[c]) for r, row in rows.items()} for c in SHOWN)
    return {
        "fig10a.order.ttft_p90": p90["15"] == min(p90.values()) and comparable(p90["20"], p90["15"]),
        "fig10a.order.throughput": comparable(rate["15"], rate["10"]) and rate["20"] < rate["15"],
        "fig10a.order.tpot": tpot["20"] > tpot["15"],
    }


def name(ratio_pct: float) -> str:
    return f"VAMP-{ratio_pct:g}" if ratio_pct else "vLLM"


def measured(p: Params, cells: pd.DataFrame) -> list[Measured]:
    """None of another replay, nor without all of the paper's ratios."""
    if p.needs(*PAPER_RATIOS):
        return []
    return [Measured(i, p.platform, holds, n=p.repeats) for i, holds in statements(p, cells).items()]


def figure(p: Params, runs: Sequence[RunResult], cells: pd.DataFrame) -> SavedFigure:
    wide = [(c, f"{c}_sd") for c in SHOWN]
    data = pd.concat(
        [
            cells[["system", c, sd]].set_axis(["system", "value", "sd"], axis=1).assign(metric=METRICS[c])
            for c, sd in wide
        ]
    )
    heading = f"Fig. 10(a): offloading ratios on one replay, {find_platform(p.platform, p.backend).title}"
    fig = ratio_tradeoff(data, heading=heading, where=replays.where(p, runs))
    return theme.save_figure(fig, data, notebook=NOTEBOOK, name="ratios", backend=p.backend)


def save(p: Params, cells: pd.DataFrame) -> results.Results:
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, cells),
        summaries=cells,
        why_not=p.needs(*PAPER_RATIOS),
    )
