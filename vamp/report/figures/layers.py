"""Fig. 11: distinct routed experts per layer; and section VII-A: what a layer computes while the next one is copied."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vamp.report import theme

_ROUTING = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"))
_PAPER_MEAN, _PAPER_MAX = (262, 473), 494


def layer_union(layers: pd.DataFrame, experts: int, *, heading: str, where: str) -> Figure:
    """Mean and largest union per layer, a colour per routing; shaded is the paper's range of the means.

    Args:
        layers: columns routing, layer, mean and largest.
        experts: routed experts of a layer.
    """
    with theme.style():
        fig = Figure(figsize=(theme.COLUMN_IN, 2.8), layout="constrained")
        ax = fig.subplots()
        ax.axhspan(*_PAPER_MEAN, color="#F2F2F2", zorder=0, label="paper: range of means")
        ax.axhline(_PAPER_MAX, color="#999999", linewidth=0.8, linestyle="--", label="paper: largest")
        for (routing, of), (ink, mark) in zip(layers.groupby("routing", sort=False), _ROUTING, strict=False):
            ax.plot(of["layer"], of["mean"], color=ink, marker=mark, markersize=3, label=f"{routing}: mean")
            ax.plot(of["layer"], of["largest"], color=ink, linestyle=":", linewidth=0.9, label=f"{routing}: largest")
        ax.axhline(experts, color="black", linewidth=0.6)
        ax.set(xlabel="layer", ylabel=f"distinct experts (of {experts})", ylim=(0, experts * 1.04))
        fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=6)
        theme.title(fig, heading, where)
    return fig


def copy_hiding(rows: pd.DataFrame, *, heading: str, where: str) -> Figure:
    """Time of a layer's compute and of the copy that has to hide behind it, one panel per platform, log axes.

    Args:
        rows: columns title, step (a line each), n_tok, ratio_pct, compute_ms and copy_ms, per layer.
    """
    platforms = list(dict.fromkeys(rows["title"]))
    with theme.style():
        fig = Figure(figsize=(theme.PAGE_IN, 2.8), layout="constrained")
        axes: list[Axes] = list(fig.subplots(1, len(platforms), sharey=True, squeeze=False)[0])
        for ax, name in zip(axes, platforms, strict=True):
            _hiding_panel(ax, rows[rows["title"] == name])
            ax.set_title(name)
        axes[0].set_ylabel("time per layer (ms)")
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
        theme.title(fig, heading, where)
    return fig


def _hiding_panel(ax: Axes, rows: pd.DataFrame) -> None:
    for (step, of), mark in zip(rows.drop_duplicates("n_tok").groupby("step", sort=False), "os", strict=False):
        ax.plot(of["n_tok"], of["compute_ms"], color="black", marker=mark, markersize=3, label=f"{step}: compute")
    for ratio, of in rows.groupby("ratio_pct"):
        system = f"VAMP-{ratio:g}"
        ax.plot(of["n_tok"], of["copy_ms"], color=theme.color(system), linestyle="--", label=f"{system}: copy")
    ax.set(xscale="log", yscale="log", xlabel="tokens in the step")
    theme.plain_ticks(ax.xaxis)
    theme.plain_ticks(ax.yaxis)
    ax.tick_params(axis="x", rotation=45)
