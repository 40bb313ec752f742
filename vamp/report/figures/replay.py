"""Table IV as pictures: the distribution of TTFT, and what pool, cache and preemptions do over time."""

from __future__ import annotations

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme


def ttft_cdf(ttft: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """Cumulative distribution of TTFT, one line per system, all runs together.

    Args:
        ttft: columns system and ttft_s.
    """
    systems = theme.in_order(ttft["system"])
    with theme.style():
        fig = Figure(figsize=(theme.COLUMN_IN, 2.5), layout="constrained")
        ax = fig.subplots()
        for system in systems:
            of = ttft.loc[ttft["system"] == system, "ttft_s"].clip(lower=1e-3)
            sns.ecdfplot(x=of, ax=ax, color=theme.color(system), label=system)
        for share in (0.9, 0.99):
            ax.axhline(share, color="#999999", linewidth=0.6, linestyle=":")
            ax.text(0.01, share, f"p{share:.0%}"[:-1], transform=ax.get_yaxis_transform(), fontsize=6, va="bottom")
        ax.set_xscale("log")
        theme.plain_ticks(ax.xaxis)
        ax.tick_params(axis="x", rotation=45)
        ax.set(xlabel="TTFT (s)", ylabel="share of requests", ylim=(0, 1.03))
        ax.legend(loc="lower right")
        theme.title(fig, heading, where)
    return fig


def timeline(points: pd.DataFrame, window: tuple[float, float] | None, *, heading: str, where: str) -> Figure:
    """Pool size, hit rate and preemptions over the run, one line per system.

    Args:
        points: columns system, t_s, pool_gib, hit_pct (of the time bin), preemptions (cumulative).
        window: measurement interval to shade, seconds.
    """
    panels = (("pool_gib", "KV pool (GiB)"), ("hit_pct", "hit rate (%)"), ("preemptions", "preemptions"))
    with theme.style():
        fig = Figure(figsize=(theme.COLUMN_IN, 3.6), layout="constrained")
        axes: list[Axes] = list(fig.subplots(len(panels), 1, sharex=True))
        for ax, (column, label) in zip(axes, panels, strict=True):
            for system in theme.in_order(points["system"]):
                of = points[points["system"] == system]
                ax.plot(of["t_s"] / 60, of[column], color=theme.color(system), label=system)
            if window:
                ax.axvspan(window[0] / 60, window[1] / 60, color="#F2F2F2", zorder=0)
            ax.set_ylabel(label)
            ax.set_ylim(bottom=0)
        axes[-1].set_xlabel("time (min); shaded: measurement interval" if window else "time (min)")
        axes[0].legend(loc="best", ncols=2)
        fig.align_ylabels(axes)
        theme.title(fig, heading, where)
    return fig
