"""Fig. 8: median TTFT of each turn under vLLM and VAMP-20, and the sessions that are left."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from vamp.experiments import replays
from vamp.experiments.parameters import Ratio, find_platform
from vamp.experiments.replays import ReplayParameters
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.report import results, theme
from vamp.report.figures import median_by_turn
from vamp.report.tables import number
from vamp.report.theme import SavedFigure
from vamp.report.values import paper_value
from vamp.report.verdicts import Measured

NOTEBOOK = "10_fig8_median_by_turn"
COVERS = ("fig8.*",)
PAPER_RATIO_PCT = 20.0
SHOWN_SHARE = 0.25  # turns that fewer sessions reach are left out: the paper's 12 of 48
SMOOTH_TURNS = 5  # centred mean over so many turns, before a peak or a decline is looked for
PLATEAU_SHARE = 0.9  # of the smoothed peak; the decline begins after the last turn at or above it


class Params(ReplayParameters):
    ratio: Ratio = PAPER_RATIO_PCT

    @property
    def system(self) -> str:
        return f"VAMP-{self.ratio:g}"

    @property
    def why_not(self) -> str:
        return super().why_not or (f"{self.system} was run" if self.ratio != PAPER_RATIO_PCT else "")


def specs(p: Params) -> list[RunSpec]:
    """vLLM's runs are Table IV's."""
    return replays.specs(p, (0.0, p.ratio))


def medians(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per system and shown turn: system, turn, ttft_s (mean of the runs' medians), sd, n, sessions."""
    table = replays.ttft_by(replays.finished_rows(specs, runs), "turn", 50)
    n_sessions = max(run.requests["session_id"].nunique() for run in runs)
    return table[table["sessions"] >= SHOWN_SHARE * n_sessions].reset_index(drop=True)


def of(medians: pd.DataFrame, system: str) -> pd.Series:
    """Median TTFT by turn, seconds."""
    return medians[medians["system"] == system].set_index("turn")["ttft_s"]


def smoothed(by_turn: pd.Series) -> pd.Series:
    """Without turn 0, which no cache can serve; windows at both ends are shorter."""
    return by_turn[by_turn.index > 0].rolling(SMOOTH_TURNS, center=True, min_periods=1).mean()


def decline_turn(by_turn: pd.Series) -> int | None:
    """Last turn on the plateau; None when the medians never leave it."""
    line = smoothed(by_turn)
    on_it = line[line >= PLATEAU_SHARE * line.max()]
    return None if on_it.empty or on_it.index[-1] == line.index[-1] else int(on_it.index[-1])


def facts(p: Params, medians: pd.DataFrame) -> dict[str, float | int | None]:
    """What the text says of the picture, by value id. It prints two values for turn 0 without saying whose they are;
    we put VAMP-20's first, the order in which it names the systems."""
    base, own = of(medians, "vLLM"), of(medians, p.system)
    return {
        "fig8.turn0.first": float(own.iloc[0]),
        "fig8.turn0.second": float(base.iloc[0]),
        "fig8.vamp20.ttft_median": float(own[own.index > 0].median()),
        "fig8.vllm.ttft_median_peak": float(smoothed(base).max()),
        "fig8.decline_turn": decline_turn(base),
    }


def table(p: Params, medians: pd.DataFrame) -> pd.DataFrame:
    """The sentences of the text as numbers, the paper's beside ours."""
    labels = (
        f"median TTFT at turn 0, {p.system}, s",
        "median TTFT at turn 0, vLLM, s",
        f"median TTFT after turn 0, {p.system} (median over turns), s",
        f"highest median TTFT, vLLM (mean of {SMOOTH_TURNS} turns), s",
        "last turn of vLLM's plateau",
    )
    found = facts(p, medians)
    rows = [
        (label, number(ours), number(paper_value(i).value))
        for label, (i, ours) in zip(labels, found.items(), strict=True)
    ]
    rows.append(("last turn shown", number(int(medians["turn"].max())), number(paper_value("fig8.last_turn").value)))
    return pd.DataFrame(rows, columns=["quantity", "here", "paper"])


def measured(p: Params, medians: pd.DataFrame) -> list[Measured]:
    """None of another replay."""
    if p.why_not:
        return []
    return [Measured(i, p.platform, value, n=p.repeats) for i, value in facts(p, medians).items()]


def figure(p: Params, runs: Sequence[RunResult], medians: pd.DataFrame) -> SavedFigure:
    heading = f"Fig. 8: median TTFT by turn, {find_platform(p.platform, p.backend).title}"
    fig = median_by_turn(medians, heading=heading, where=replays.where(p, runs))
    return theme.save_figure(fig, medians, notebook=NOTEBOOK, name="median_by_turn", backend=p.backend)


def save(p: Params, medians: pd.DataFrame) -> results.Results:
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, medians),
        summaries=medians,
        why_not=p.why_not,
    )
