"""Fig. 10(b): requests per second that meet both a TTFT and a TPOT limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import pandas as pd
from pydantic import AfterValidator, BeforeValidator, Field

from vamp.experiments import replays
from vamp.experiments.fig10a import PAPER_RATIOS
from vamp.experiments.parameters import Ratios, find_platform, from_text, unique
from vamp.experiments.replays import ComparisonParameters
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.measure.slo import qualified_per_s
from vamp.measure.window import window_for
from vamp.report import results, theme
from vamp.report.figures import slo_grid
from vamp.report.tables import number
from vamp.report.theme import SavedFigure
from vamp.report.verdicts import Measured

NOTEBOOK = "15_fig10b_slo_grid"
COVERS = ("fig10b.*",)
LITTLE = 0.25  # ASSUMPTION: "little" is less than this part of what the system completes at all
Limits = Annotated[
    tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(from_text), Field(min_length=1), AfterValidator(unique)
]


class Params(ComparisonParameters):
    """`ttft_limits_s`, `tpot_limits_ms`: the grid. ASSUMPTION: the text names 150, 200 and 250 ms, no other limit."""

    ratios: Ratios = PAPER_RATIOS
    ttft_limits_s: Limits = (1.0, 2.0, 5.0, 10.0, 30.0)
    tpot_limits_ms: Limits = (150.0, 200.0, 250.0, 300.0, 350.0)

    @property
    def lacks(self) -> str:
        """Why nothing is compared with the paper."""
        named = {150.0, 200.0, 250.0}
        missing = "" if named <= set(self.tpot_limits_ms) else "a TPOT limit of 150, 200 or 250 ms is not in the grid"
        return self.needs(*PAPER_RATIOS) or missing


def specs(p: Params) -> list[RunSpec]:
    """The runs of Fig. 10(a)."""
    return replays.specs(p, p.ratios)


def grid(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per system and cell: system, ttft_limit_s, tpot_limit_ms, q_per_s (mean over runs), share.

    `share` is the part of all requests that the system completed in the interval.
    """
    out = []
    for spec, run in zip(specs, runs, strict=True):
        window = window_for(run, spec)
        done_per_s = len(window.completed(run.requests)) / window.duration_s
        for t in p.ttft_limits_s:
            for tpot in p.tpot_limits_ms:
                q = qualified_per_s(run.requests, window, ttft_s=t, tpot_ms=tpot)
                out.append((spec.system, t, tpot, q, q / done_per_s))
    rows = pd.DataFrame(out, columns=["system", "ttft_limit_s", "tpot_limit_ms", "q_per_s", "share"])
    return rows.groupby(["system", "ttft_limit_s", "tpot_limit_ms"], as_index=False, sort=False).mean()


def leaders(grid: pd.DataFrame) -> pd.DataFrame:
    """Per cell the system with the largest Q, and that Q; "none" where nothing qualifies."""
    best = grid.loc[grid.groupby(["ttft_limit_s", "tpot_limit_ms"])["q_per_s"].idxmax()]
    return best.assign(system=best["system"].where(best["q_per_s"] > 0, "none")).reset_index(drop=True)


def table(grid: pd.DataFrame) -> pd.DataFrame:
    """The leader of each cell and its Q: a row per TTFT limit, a column per TPOT limit."""
    best = leaders(grid)
    text = best.assign(text=[f"{s} {number(q)}" for s, q in zip(best["system"], best["q_per_s"], strict=True)])
    wide = text.pivot(index="ttft_limit_s", columns="tpot_limit_ms", values="text")
    wide.index = pd.Index([f"{t:g}" for t in wide.index], name="TTFT <= s")
    wide.columns = pd.Index([f"{t:g}" for t in wide.columns], name="TPOT <= ms")
    return wide


def statements(grid: pd.DataFrame) -> dict[str, bool]:
    """The three sentences of the text, by value id: True where they hold in every cell that they speak of."""
    best = leaders(grid)
    at200 = best.loc[best["tpot_limit_ms"] == 200, "system"]
    loose = best.loc[best["tpot_limit_ms"] >= 250, "system"]
    return {
        "fig10b.P150": bool((grid.loc[grid["tpot_limit_ms"] == 150, "share"] < LITTLE).all()),
        "fig10b.P200": bool(at200.isin(["vLLM", "VAMP-10"]).all()),
        "fig10b.P250": bool((loose == "VAMP-15").all()),
    }


def measured(p: Params, grid: pd.DataFrame) -> list[Measured]:
    """None of another replay, nor without the paper's ratios and named limits."""
    if p.lacks:
        return []
    return [Measured(i, p.platform, holds, n=p.repeats) for i, holds in statements(grid).items()]


def figure(p: Params, runs: Sequence[RunResult], grid: pd.DataFrame) -> SavedFigure:
    heading = f"Fig. 10(b): requests/s within both limits, {find_platform(p.platform, p.backend).title}"
    fig = slo_grid(grid, heading=heading, where=replays.where(p, runs))
    return theme.save_figure(fig, grid, notebook=NOTEBOOK, name="slo_grid", backend=p.backend)


def save(p: Params, grid: pd.DataFrame) -> results.Results:
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, grid),
        summaries=grid,
        why_not=p.lacks,
    )
