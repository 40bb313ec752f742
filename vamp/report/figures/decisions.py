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
