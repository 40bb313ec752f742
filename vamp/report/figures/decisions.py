"""VI-D: the two scores of every decision, coloured by the choice, and the pool that the decisions made."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme

_LEAST_MS = 1e-3  # smaller scores (zero, with an empty hit history) are drawn here on the logarithmic axes
CHOICES = {"evict": "#009E73", "offload": "#0072B2", "offload_evict": "#E69F00", "preempt": "#D55E00"}


def decision_scores(scores: pd.DataFrame, pool: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """Left: C_c against C_e. Right: the pool over time.

    Args:
        scores: columns C_c_ms, C_e_ms and choice, for decisions that had both plans.
        pool: columns run (a legend entry), t_s and pool_gib.
    """
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN, 2.8), layout="constrained")
        left, right = fig.subplots(1, 2)
        _scatter(left, scores)
        for name, style in zip(dict.fromkeys(pool["run"]), ("-", "--", ":", "-."), strict=False):
            of = pool[pool["run"] == name]
            look: dict[str, Any] = {"color": theme.COLORS["VAMP-20"], "linestyle": style}
            right.step(of["t_s"] / 60, of["pool_gib"], where="post", label=name, **look)
        right.set(xlabel="time (min)", ylabel="KV pool (GiB per GPU)")
        right.legend(loc="best")
        theme.title(fig, heading, where)
    return fig


def _scatter(ax: Axes, scores: pd.DataFrame) -> None:
    ax.set(xlabel="eviction score $C_c$ (ms)", ylabel="offload score $C_e$ (ms)")
    if scores.empty:
        ax.text(0.5, 0.5, "no decision had both plans feasible", transform=ax.transAxes, ha="center")
        return
    shown = scores.assign(**{c: scores[c].clip(lower=_LEAST_MS) for c in ("C_c_ms", "C_e_ms")})
    present = [c for c in CHOICES if c in set(shown["choice"])]
    by_choice = {"hue": "choice", "style": "choice", "hue_order": present, "style_order": present}
    dots: dict[str, Any] = {"palette": CHOICES, "s": 14, "alpha": 0.7, "linewidth": 0, "rasterized": True}
    sns.scatterplot(data=shown, x="C_c_ms", y="C_e_ms", ax=ax, **by_choice, **dots)
    low = min(shown["C_c_ms"].min(), shown["C_e_ms"].min())
    high = max(shown["C_c_ms"].max(), shown["C_e_ms"].max())
    ax.plot([low, high], [low, high], color="#999999", linewidth=0.8, linestyle=":", label="equal")
    ax.set(xscale="log", yscale="log")
    theme.plain_ticks(ax.xaxis)
    theme.plain_ticks(ax.yaxis)
    ax.legend(loc="best", title=None)


_COSTS = {"C_c_ms": "evict", "C_e_ms": "offload", "C_p_ms": "preempt", "C_b_ms": "offload_evict"}


def decision_steps(steps: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """Decision by decision: the four costs with the chosen one ringed, the gap, the pool.

    Args:
        steps: columns number, C_c_ms, C_e_ms, C_p_ms, C_b_ms (NaN: not feasible), choice, gap_blk and pool_gib.
    """
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN, 4.2), layout="constrained")
        costs, gap, pool = fig.subplots(3, 1, sharex=True, height_ratios=(2.2, 1, 1))
        for (column, plan), mark in zip(_COSTS.items(), "os^D", strict=True):
            shown = steps[column].clip(lower=_LEAST_MS)
            costs.plot(
                steps["number"], shown, mark, color=CHOICES[plan], markersize=3, label=f"{plan} (${column[:3]}$)"
            )
            taken = steps["choice"] == plan
            costs.plot(steps.loc[taken, "number"], shown[taken], "o", mfc="none", color="black", markersize=7, mew=0.7)
        costs.plot([], [], "o", mfc="none", color="black", markersize=7, mew=0.7, label="chosen")
        costs.set(yscale="log", ylabel="estimated cost (ms)")
        theme.plain_ticks(costs.yaxis)
        fig.legend(*costs.get_legend_handles_labels(), loc="outside lower center", ncols=5)
        gap.bar(steps["number"], steps["gap_blk"], color="#999999")
        gap.set_ylabel("gap (blocks)")
        pool.step(steps["number"], steps["pool_gib"], where="post", color=theme.COLORS["VAMP-20"])
        pool.set(xlabel="decision", ylabel="KV pool\n(GiB per GPU)")
        fig.align_ylabels([costs, gap, pool])
        theme.title(fig, heading, where)
    return fig
