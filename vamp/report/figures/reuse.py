"""Figs. 1(b), 2 and 3: what prefix caching keeps of a session, and where it stops keeping."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme

FATES = {"reused": "#009E73", "evicted, so recomputed": "#D55E00", "new in this turn": "#BBBBBB"}


def session_strips(parts: pd.DataFrame, ttft_s: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """One panel per system, one strip per turn of one session.

    Args:
        parts: columns system, turn, part (a key of FATES) and blk, lengths in KV blocks, in the prompt's order.
        ttft_s: columns system, turn and ttft_s, written behind each strip.
    """
    systems = theme.in_order(parts["system"])
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN, 2.7), layout="constrained")
        axes: list[Axes] = list(fig.subplots(1, len(systems), sharex=True, sharey=True, squeeze=False)[0])
        for ax, system in zip(axes, systems, strict=True):
            _strips(ax, parts[parts["system"] == system], ttft_s[ttft_s["system"] == system])
            ax.set(title=system, xlabel="prompt, KV blocks")
        axes[0].invert_yaxis()
        axes[0].set(ylabel="turn", xlim=(0, 1.3 * parts.groupby(["system", "turn"])["blk"].sum().max()))
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower center", ncols=len(FATES))
        theme.title(fig, heading, where)
    return fig


def _strips(ax: Axes, parts: pd.DataFrame, ttft_s: pd.DataFrame) -> None:
    wide = parts.pivot(index="turn", columns="part", values="blk")
    left = pd.Series(0.0, index=wide.index)
    for part, color in FATES.items():
        look: dict[str, Any] = {"color": color, "edgecolor": "white", "height": 0.7, "linewidth": 0.4}
        ax.barh(wide.index, wide[part], left=left, label=part, **look)
        left = left + wide[part]
    for turn, seconds in ttft_s[["turn", "ttft_s"]].itertuples(index=False):
        ax.text(left[turn], turn, f"  TTFT {seconds:.3g} s", va="center", fontsize=6)
    ax.set_yticks(list(wide.index))
    ax.grid(visible=False, axis="y")


def prefix_cliff(cells: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """One panel per platform: hit rate and TTFT p99 against what the sessions' prefixes need of the pool.

    Args:
        cells: columns platform, demand (part of the pool, 1 is all of it), hit_rate_per_request_pct and ttft_p99_s.
    """
    platforms = list(dict.fromkeys(cells["platform"]))
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN if len(platforms) > 1 else theme.COLUMN_IN + 1, 2.6), layout="constrained")
        for ax, platform in zip(fig.subplots(1, len(platforms), squeeze=False)[0], platforms, strict=True):
            of = cells[cells["platform"] == platform].sort_values("demand")
            hits: dict[str, Any] = {"color": "#0072B2", "marker": "o", "label": "hit rate"}
            ax.plot(of["demand"], of["hit_rate_per_request_pct"], **hits)
            ax.set(title=platform, xlabel="prefixes of all sessions / KV pool", ylim=(0, 105))
            ax.set_ylabel("prompt tokens from the cache (%)", color="#0072B2")
            ax.axvline(1.0, color="#999999", linewidth=0.8, linestyle=":")
            other = ax.twinx()
            tail: dict[str, Any] = {"color": "#D55E00", "marker": "s", "linestyle": "--", "label": "TTFT p99"}
            other.plot(of["demand"], of["ttft_p99_s"], **tail)
            other.set_ylabel("TTFT p99 (s)", color="#D55E00")
            other.set_ylim(bottom=0)
            other.grid(visible=False)
            other.spines["right"].set_visible(True)
        theme.title(fig, heading, where)
    return fig
