"""One look for all figures: fixed colours per system, safe for colour-blind readers; sizes in inches."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from vamp.paths import results_dir
from vamp.report.results import write_atomically

SYSTEMS = ("vLLM", "VAMP-10", "VAMP-15", "VAMP-20", "VAMP-25")
COLORS = dict(zip(SYSTEMS, ("#4D4D4D", "#56B4E9", "#0072B2", "#D55E00", "#009E73"), strict=True))
MARKERS = dict(zip(SYSTEMS, ("X", "v", "o", "s", "D"), strict=True))
OTHER_COLOR, OTHER_MARKER = "#CC79A7", "P"
COLUMN_IN, PAGE_IN = 3.5, 7.16  # widths of one and of two columns of a two-column page
_PNG_DPI = 200
_CHARACTERS_PER_IN = 16.5  # of the title's type

_RC: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "figure.titlesize": 8.5,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "#DDDDDD",
    "legend.frameon": False,
    "svg.hashsalt": "vamp",  # ids inside the SVG do not change from run to run
}


@contextmanager
def style() -> Iterator[None]:
    """The look, for the duration of a `with` block."""
    base: dict[Any, Any] = sns.axes_style("ticks")
    with mpl.rc_context(base | _RC):
        yield


def color(system: str) -> str:
    return COLORS.get(system, OTHER_COLOR)


def marker(system: str) -> str:
    return MARKERS.get(system, OTHER_MARKER)


def in_order(systems: pd.Series) -> list[str]:
    """The systems that occur: vLLM first, then by ratio."""
    return sorted(set(systems), key=lambda s: 0.0 if s == "vLLM" else float(s.partition("-")[2]))


def origin(backend: str, *, stand_in: bool = False, scale: float = 1.0, note: str = "") -> str:
    """Where the numbers of a figure are from: the second line of its title."""
    engine = {
        "sim": "simulated: vLLM 0.26.0's scheduler in virtual time",
        "cpu": "live, tiny model on a CPU",
        "cuda": "live on GPUs",
        "recorded": "recorded from an earlier run on GPUs",
    }.get(backend, backend)
    trace = "synthetic stand-in trace" if stand_in else ""
    parts = [engine, trace, f"scale {scale:g}" if scale < 1 else "", note]
    return "; ".join(part for part in parts if part)


def title(fig: Figure, text: str, where: str) -> None:
    """What is shown, and below it where it is from, wrapped to the figure's width."""
    width = int(fig.get_figwidth() * _CHARACTERS_PER_IN)
    fig.suptitle("\n".join([*wrap(text, width), *wrap(f"({where})", width)]), fontsize=8)


def plain_ticks(axis: Axis) -> None:
    """Logarithmic axis with ticks at 1, 2 and 5, written as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


@dataclass(frozen=True, slots=True)
class SavedFigure:
    """A figure on disk, as SVG and PNG, with its data as CSV; a notebook shows the PNG."""

    svg: Path
    png: Path
    csv: Path

    def _repr_png_(self) -> bytes:
        return self.png.read_bytes()

    def __repr__(self) -> str:
        return f"{self.png.stem}: svg, png, csv"


def save_figure(fig: Figure, data: pd.DataFrame, *, notebook: str, name: str, backend: str) -> SavedFigure:
    """Write artifact/results/<notebook>/<name>.<backend>.{svg,png,csv}."""
    folder = results_dir() / notebook
    paths = {suffix: folder / f"{name}.{backend}.{suffix}" for suffix in ("svg", "png", "csv")}
    with style():
        for suffix, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": _PNG_DPI})):
            buffer = io.BytesIO()
            fig.savefig(buffer, format=suffix, bbox_inches="tight", **options)
            write_atomically(paths[suffix], buffer.getvalue())
    write_atomically(paths["csv"], data.to_csv(index=False, float_format="%.6g").encode())
    return SavedFigure(**paths)
