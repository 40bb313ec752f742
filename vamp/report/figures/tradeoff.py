"""The LMCache trace: what each ratio gives and costs at each load."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme
from vamp.report.tables import number

PANELS = (
    ("ttft_p99_s", "TTFT p99 (s)"),
    ("tpot_ms", "TPOT (ms)"),
    ("output_tokens_per_s", "output tokens/s"),
    ("completed_pct", "turns completed (%)"),
)
_HATCH = {0: "", 1: "///", 2: "..."}


def load_tradeoff(cells: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """Four panels of bars: a group per load, a bar per system.

    Args:
        cells: columns sessions, system, and for every panel its value and <value>_sd.
    """
    systems, loads = theme.in_order(cells["system"]), sorted(cells["sessions"].unique())
    width = 0.8 / len(systems)
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN, 2.5), layout="constrained")
        axes: list[Axes] = list(fig.subplots(1, len(PANELS)))
        for ax, (column, label) in zip(axes, PANELS, strict=True):
            for n, system in enumerate(systems):
                of = cells[cells["system"] == system].set_index("sessions").reindex(loads)
                at = [i + (n - (len(systems) - 1) / 2) * width for i in range(len(loads))]
                look: dict[str, Any] = {"color": theme.color(system), "hatch": _HATCH[n % 3], "edgecolor": "white"}
                bars = ax.bar(at, of[column], width, yerr=of[f"{column}_sd"].fillna(0.0), label=system, **look)
                ax.bar_label(bars, [number(float(x)) for x in of[column]], fontsize=5, rotation=90, padding=2)
            ax.set_xticks(range(len(loads)), [str(load) for load in loads])
            ax.set(xlabel="sessions", ylabel=label)
            ax.margins(y=0.25)
            ax.grid(visible=False, axis="x")
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(systems))
        theme.title(fig, heading, where)
    return fig
