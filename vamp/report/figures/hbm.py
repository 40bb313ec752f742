"""Stacked bars of one GPU's memory (Tables I and II, Fig. 1(a))."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme
from vamp.report.tables import number

PARTS = {
    "expert weights": "#0072B2",
    "reclaimed for KV": "#E69F00",
    "KV-cache pool at start": "#F0E442",
    "other weights, activations, reserve": "#BBBBBB",
    "dense weights": "#56B4E9",
    "left for KV cache and the rest": "#E5E5E5",
}


def hbm_bars(parts: pd.DataFrame, *, heading: str, where: str, unit: str = "GiB per GPU") -> Figure:
    """One bar per `bar`.

    Args:
        parts: columns bar, part (a key of PARTS) and gib.
        unit: of the column gib.
    """
    table = parts.groupby(["bar", "part"], sort=False)["gib"].sum().unstack(fill_value=0)
    with theme.style():
        fig = Figure(figsize=(theme.COLUMN_IN + 1.2, 0.55 + 0.45 * len(table) + 0.75), layout="constrained")
        ax = fig.subplots()
        left = pd.Series(0.0, index=table.index)
        for part in [p for p in PARTS if p in table]:
            look: dict[str, Any] = {"color": PARTS[part], "edgecolor": "white", "height": 0.62}
            ax.barh(table.index, table[part], left=left, label=part, **look)
            _annotate(ax, table[part], left, "white" if part == "expert weights" else "black")
            left = left + table[part]
        ax.invert_yaxis()
        ax.set_xlabel(unit)
        ax.grid(visible=False, axis="y")
        fig.legend(loc="outside lower center", ncols=2)
        theme.title(fig, heading, where)
    return fig


def _annotate(ax: Axes, widths: pd.Series, left: pd.Series, ink: str) -> None:
    for y, (width, start) in enumerate(zip(widths, left, strict=True)):
        if width >= 4:  # narrower segments have no room for a number
            ax.text(start + width / 2, y, number(float(width)), ha="center", va="center", fontsize=7, color=ink)
