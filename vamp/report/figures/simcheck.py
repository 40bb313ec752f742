"""The simulator beside recordings: TTFT of every run twice."""

from __future__ import annotations

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme

_LOOK = {"recorded": "-", "simulated": "--"}


def ttft_pairs(rows: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """Cumulative distributions of TTFT, recorded solid and simulated dashed, one panel per run.

    Args:
        rows: columns run, system, source (recorded or simulated) and ttft_s.
    """
    runs = list(dict.fromkeys(rows["run"]))
    n_rows = -(-len(runs) // 2)
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN, 0.6 + 1.7 * n_rows), layout="constrained")
        axes: list[Axes] = list(fig.subplots(n_rows, 2, squeeze=False).flat)
        for ax, run in zip(axes, runs, strict=False):
            _panel(ax, rows[rows["run"] == run])
            ax.set_title(run)
        for ax in axes[len(runs) :]:
            ax.set_visible(False)
        for ax in axes[-2:]:
            ax.set_xlabel("TTFT (s)")
        theme.title(fig, heading, where)
    return fig


def _panel(ax: Axes, of: pd.DataFrame) -> None:
    color = theme.color(of["system"].iloc[0])
    for source, line in _LOOK.items():
        own = of.loc[of["source"] == source, "ttft_s"]
        sns.ecdfplot(x=own, ax=ax, color=color, linestyle=line, label=source)
    ax.set_xscale("log")
    theme.plain_ticks(ax.xaxis)
    ax.set(xlabel="", ylabel="share of requests", ylim=(0, 1.03))
    ax.legend(loc="lower right")
