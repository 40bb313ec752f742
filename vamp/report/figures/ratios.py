"""Fig. 10: what the offloading ratio trades, and where which ratio meets the limits of a service."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme


def ratio_tradeoff(rows: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """One panel per metric, one bar per system.

    Args:
        rows: columns system, metric (the panel's axis label), value and sd (over runs, may be NaN).
    """
    metrics = list(dict.fromkeys(rows["metric"]))
    systems = theme.in_order(rows["system"])
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN, 2.4), layout="constrained")
        axes: list[Axes] = list(fig.subplots(1, len(metrics), squeeze=False)[0])
        for ax, metric in zip(axes, metrics, strict=True):
            of = rows[rows["metric"] == metric].set_index("system").loc[systems]
            look: dict[str, Any] = {"color": [theme.color(s) for s in systems], "width": 0.65, "capsize": 2.0}
            drawn = ax.bar(systems, of["value"], yerr=of["sd"].fillna(0.0), **look)
            ax.bar_label(drawn, fmt="%.3g", fontsize=6, padding=1)
            ax.set_ylabel(metric)
            ax.grid(visible=False, axis="x")
        theme.title(fig, heading, where)
    return fig


def slo_grid(cells: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """One heat map per system on one scale; framed is the best system of each cell.

    Args:
        cells: columns system, ttft_limit_s, tpot_limit_ms and q_per_s.
    """
    systems = theme.in_order(cells["system"])
    best = cells.groupby(["ttft_limit_s", "tpot_limit_ms"])["q_per_s"].transform("max")
    framed = cells[(cells["q_per_s"] == best) & (best > 0)]
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN, 2.5), layout="constrained")
        axes: list[Axes] = list(fig.subplots(1, len(systems), sharey=True, squeeze=False)[0])
        for ax, system in zip(axes, systems, strict=True):
            wide = _wide(cells, system)
            look: dict[str, Any] = {"cmap": "cividis", "annot": True, "fmt": ".2f", "annot_kws": {"fontsize": 6}}
            sns.heatmap(wide, vmin=0, vmax=float(cells["q_per_s"].max()), ax=ax, cbar=False, **look)
            _frame(ax, wide, framed[framed["system"] == system])
            ax.set(title=system, xlabel="TPOT limit (ms)", ylabel="TTFT limit (s)" if ax is axes[0] else "")
            ax.tick_params(rotation=0)
        theme.title(fig, heading, f"{where}; framed: the best of each cell")
    return fig


def _wide(cells: pd.DataFrame, system: str) -> pd.DataFrame:
    """TTFT limits downwards from the loosest, TPOT limits to the right."""
    of = cells[cells["system"] == system]
    wide = of.pivot(index="ttft_limit_s", columns="tpot_limit_ms", values="q_per_s").sort_index(ascending=False)
    wide.index, wide.columns = wide.index.map("{:g}".format), wide.columns.map("{:g}".format)
    return wide


def _frame(ax: Axes, wide: pd.DataFrame, framed: pd.DataFrame) -> None:
    for ttft_s, tpot_ms in framed[["ttft_limit_s", "tpot_limit_ms"]].itertuples(index=False):
        x, y = list(wide.columns).index(f"{tpot_ms:g}"), list(wide.index).index(f"{ttft_s:g}")
        edge: dict[str, Any] = {"edgecolor": "#D55E00", "linewidth": 1.4, "facecolor": "none", "clip_on": False}
        ax.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], **edge)
