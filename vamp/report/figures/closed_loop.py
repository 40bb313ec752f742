"""Fig. 6: the state of each system and its TTFT, half hour by half hour."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme

PANELS = (
    ("kv_util", "KV-cache\nutilisation"),
    ("waiting", "waiting\nrequests"),
    ("preemptions", "preemptions\nper bin"),
    ("ttft_mean_s", "mean TTFT (s)"),
)


def closed_loop_bins(bins: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """Four panels over one axis of time, a line per system.

    Args:
        bins: columns system, middle_h (middle of the bin, hours), kv_util, waiting, preemptions, ttft_mean_s.
    """
    with theme.style():
        fig = Figure(figsize=(theme.COLUMN_IN, 4.6), layout="constrained")
        axes: list[Axes] = list(fig.subplots(len(PANELS), 1, sharex=True))
        for ax, (column, label) in zip(axes, PANELS, strict=True):
            for system in theme.in_order(bins["system"]):
                of = bins[bins["system"] == system]
                look: dict[str, Any] = {"color": theme.color(system), "marker": theme.marker(system)}
                ax.plot(of["middle_h"], of[column], label=system, **look)
            ax.set_ylabel(label)
            ax.set_ylim(bottom=0)
        axes[0].set_ylim(0, 1.05)
        axes[0].legend(loc="best", ncols=2)
        axes[-1].set_xlabel("time since the start (h)")
        axes[-1].set_xlim(left=0)
        fig.align_ylabels(axes)
        theme.title(fig, heading, where)
    return fig
