"""Fig. 7: TTFT p90 by recorded turn number, over the whole replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import pandas as pd
from pydantic import Field

from vamp.experiments import replays
from vamp.experiments.parameters import Ratio, find_platform
from vamp.experiments.replays import ReplayParameters
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.report import results, theme
from vamp.report.figures import ttft_by_bin
from vamp.report.tables import with_sd
from vamp.report.theme import SavedFigure
from vamp.report.verdicts import Measured

NOTEBOOK = "09_fig7_ttft_by_turn"
COVERS = ("fig7.*",)
PAPER_RATIO_PCT = 15.0
PERCENT = 90.0
_KEYS = {"vLLM": "fig7.vllm.ttft_p90_per_bin", "VAMP-15": "fig7.vamp15.ttft_p90_per_bin"}


class Params(ReplayParameters):
    """`bin_turns`: turns per bin. ASSUMPTION: the width is only in the paper's picture."""

    ratio: Ratio = PAPER_RATIO_PCT
    bin_turns: Annotated[int, Field(ge=1, le=1000)] = 10

    @property
    def why_not(self) -> str:
        return super().why_not or (f"VAMP-{self.ratio:g} was run" if self.ratio != PAPER_RATIO_PCT else "")


def specs(p: Params) -> list[RunSpec]:
    """The runs of Table IV."""
    return replays.specs(p, (0.0, p.ratio))


def bins(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per system and bin: system, turn (the bin's first), ttft_s (mean of the runs' p90), sd, n, sessions."""
    rows = replays.finished_rows(specs, runs)
    return replays.ttft_by(rows.assign(turn=rows["turn"] // p.bin_turns * p.bin_turns), "turn", PERCENT)


def table(p: Params, bins: pd.DataFrame) -> pd.DataFrame:
    """A row per bin, a column per system, and the sessions that reach the bin."""
    text = bins.assign(text=[with_sd(m, s) for m, s in zip(bins["ttft_s"], bins["sd"], strict=True)])
    wide = text.pivot(index="turn", columns="system", values="text")[theme.in_order(bins["system"])]
    wide.insert(0, "sessions", bins.groupby("turn")["sessions"].max().round().astype(int))
    wide.index = pd.Index([f"{t} to {t + p.bin_turns - 1}" for t in wide.index], name="turns")
    return wide.add_suffix(" TTFT p90, s").rename(columns={"sessions TTFT p90, s": "sessions"})


def band(bins: pd.DataFrame, system: str) -> tuple[float, float] | None:
    """Lowest and highest TTFT p90 of the bins after the first, seconds; None with one bin only."""
    later = bins[(bins["system"] == system) & (bins["turn"] > 0)]["ttft_s"]
    return (float(later.min()), float(later.max())) if len(later) else None


def measured(p: Params, bins: pd.DataFrame) -> list[Measured]:
    """The two bands of the text; none of another replay."""
    if p.why_not:
        return []
    found = {value_id: band(bins, system) for system, value_id in _KEYS.items()}
    return [Measured(i, p.platform, value, n=p.repeats) for i, value in found.items() if value]


def figure(p: Params, runs: Sequence[RunResult], bins: pd.DataFrame) -> SavedFigure:
    heading = f"Fig. 7: TTFT p90 by turn number, {find_platform(p.platform, p.backend).title}"
    fig = ttft_by_bin(bins, p.bin_turns, heading=heading, where=replays.where(p, runs))
    return theme.save_figure(fig, bins, notebook=NOTEBOOK, name="ttft_by_turn", backend=p.backend)


def save(p: Params, bins: pd.DataFrame) -> results.Results:
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, bins),
        summaries=bins,
        why_not=p.why_not,
    )
