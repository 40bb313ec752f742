"""Fig. 9: TTFT p99 against concurrency, one panel per platform, with the line that a boundary crosses."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme


def capacity_boundary(cells: pd.DataFrame, threshold_s: dict[str, float], *, heading: str, where: str) -> Figure:
    """One panel per platform.

    Args:
        cells: columns platform, system, concurrency, ttft_p99_s and sd (over runs, may be NaN).
        threshold_s: per platform, twice its lowest p99.
    """
    platforms = list(dict.fromkeys(cells["platform"]))
    with theme.style():
        width = theme.PAGE_IN if len(platforms) > 1 else theme.COLUMN_IN
        fig = Figure(figsize=(width, 2.6), layout="constrained")
        axes: list[Axes] = list(fig.subplots(1, len(platforms), squeeze=False)[0])
        for ax, platform in zip(axes, platforms, strict=True):
            _panel(ax, cells[cells["platform"] == platform], threshold_s[platform])
            ax.set_title(platform)
        axes[0].set_ylabel("steady-state TTFT p99 (s)")
        axes[0].legend(loc="best")
        theme.title(fig, heading, where)
    return fig


def _panel(ax: Axes, cells: pd.DataFrame, threshold_s: float) -> None:
    for system in theme.in_order(cells["system"]):
        of = cells[cells["system"] == system].sort_values("concurrency")
        look: dict[str, Any] = {"color": theme.color(system), "marker": theme.marker(system), "capsize": 2.0}
        ax.errorbar(of["concurrency"], of["ttft_p99_s"], yerr=of["sd"].fillna(0.0), label=system, **look)
    ax.axhline(threshold_s, color="#AA0000", linewidth=0.8, linestyle="--")
    along = ax.get_yaxis_transform()
    ax.text(0.01, threshold_s, "2x the lowest p99", transform=along, va="bottom", fontsize=6)
    ax.set_yscale("log")
    theme.plain_ticks(ax.yaxis)
    ax.set_xticks(sorted(set(cells["concurrency"])))
    ax.set_xlabel("concurrent sessions")
