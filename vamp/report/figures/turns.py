"""Figs. 7 and 8: TTFT against the turn number of a session."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme


def ttft_by_bin(bins: pd.DataFrame, bin_turns: int, *, heading: str, where: str) -> Figure:
    """TTFT p90 per bin of turns, one line per system, and how many sessions reach the bin.

    Args:
        bins: columns system, turn (the bin's first), ttft_s, sd and sessions.
    """
    centred = bins.assign(turn=bins["turn"] + (bin_turns - 1) / 2)
    return _two_panels(centred, "TTFT p90 (s)", f"turn number, bins of {bin_turns}", heading, where, bars=True)


def median_by_turn(medians: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """Median TTFT per turn, one line per system, and how many sessions reach the turn.

    Args:
        medians: columns system, turn, ttft_s, sd and sessions.
    """
    return _two_panels(medians, "median TTFT (s)", "turn number", heading, where, bars=False)


def _two_panels(rows: pd.DataFrame, ylabel: str, xlabel: str, heading: str, where: str, *, bars: bool) -> Figure:
    with theme.style():
        fig = Figure(figsize=(theme.COLUMN_IN + 0.6, 3.2), layout="constrained")
        axes: list[Axes] = list(fig.subplots(2, 1, sharex=True, height_ratios=(3, 1)))
        top, bottom = axes
        for system in theme.in_order(rows["system"]):
            of = rows[rows["system"] == system]
            look: dict[str, Any] = {"color": theme.color(system), "label": system}
            if bars:
                sd = of["sd"].fillna(0.0)
                top.errorbar(of["turn"], of["ttft_s"], yerr=sd, marker=theme.marker(system), capsize=2.0, **look)
            else:
                top.plot(of["turn"], of["ttft_s"], **look)
        top.set_yscale("log")
        theme.plain_ticks(top.yaxis)
        top.set_ylabel(ylabel)
        top.legend(loc="best", ncols=2)
        sessions = rows.groupby("turn")["sessions"].max()
        bottom.fill_between(sessions.index, sessions, step="mid", color="#BBBBBB", linewidth=0)
        bottom.set(xlabel=xlabel, ylabel="sessions", ylim=(0, None))
        fig.align_ylabels(axes)
        theme.title(fig, heading, where)
    return fig
