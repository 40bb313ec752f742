"""Plain tables: paper against measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

COLUMNS = ("id", "paper", "measured", "delta", "unit", "tolerance", "verdict", "backend")


def number(x: Any) -> str:
    """Four significant digits; an interval as `low..high`; None as `none`; NaN as `n/a`."""
    if x is None:
        return "none"
    if isinstance(x, list | tuple):
        return "..".join(number(part) for part in x) if len(x) == 2 else ", ".join(map(number, x))
    if isinstance(x, bool | str):
        return str(x)
    if not math.isfinite(x):
        return "n/a"
    if isinstance(x, int) or (x == int(x) and abs(x) >= 1000):
        return f"{x:,.0f}"
    return f"{x:.4g}"


def with_sd(mean: float | None, sd: float | None) -> str:
    """`26.1 ± 0.7`; without the second part when there is no spread to show."""
    if mean is None:
        return "none"
    return f"{number(mean)} ± {sd:.2g}" if sd and math.isfinite(sd) else number(mean)


def delta(paper: Any, measured: Any) -> str:
    """Difference in percent of the paper's value, where both are single numbers; a statement has none."""
    if isinstance(measured, bool) or not isinstance(paper, int | float) or not isinstance(measured, int | float):
        return ""
    return f"{(measured - paper) / abs(paper) * 100:+.0f} %" if paper else f"{measured - paper:+.3g}"


def _told(row: Mapping[str, Any]) -> bool:
    return row["verdict"] in ("match", "trend", "miss")


def verdict_table(rows: Sequence[Mapping[str, Any]], backend: str) -> pd.DataFrame:
    """The table that every notebook ends with."""
    return pd.DataFrame(
        [
            {
                "id": r["id"],
                "paper": number(r["paper"]),
                "measured": with_sd_any(r["measured"], r["sd"]) if _told(r) else "",
                "delta": delta(r["paper"], r["measured"]),
                "unit": r["unit"],
                "tolerance": r["tolerance"],
                "verdict": r["verdict"],
                "backend": backend,
            }
            for r in rows
        ],
        columns=list(COLUMNS),
    )


def with_sd_any(measured: Any, sd: float | None) -> str:
    return with_sd(measured, sd) if isinstance(measured, int | float) else number(measured)
