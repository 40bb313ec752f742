"""The numbers the paper prints, by id (data/paper_values.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from vamp.errors import ClaimError
from vamp.paths import data_dir

Number = int | float
Interval = tuple[Number, Number]
Bound = Literal["upper", "lower"]


@dataclass(frozen=True, slots=True)
class PaperValue:
    """One printed number.

    Attributes:
        value: a number; an interval when `is_range`; a tuple when `is_set`; None when nothing is printed (for
            a boundary: none is crossed).
        sd: standard deviation as printed. n: runs behind it.
        kind: measured, claim, claim_qualitative, coefficient, setup, derived, derived_here, cited,
            illustration or missing.
        bound: the value is only an upper or a lower bound.
    """

    id: str
    section: str
    quantity: str
    unit: str
    value: Any
    sd: float | None
    n: int | None
    condition: str
    kind: str
    is_range: bool = False
    is_set: bool = False
    bound: Bound | None = None

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed decimal, the rounding that any printed number carries.

        Trailing zeros are not kept in the file, so 1.10 counts as printed with one decimal. Counts and
        concurrencies are compared by the `exact` rule and never widened.
        """
        parts = self.value if isinstance(self.value, tuple) else (self.value,)
        decimals = max((_decimals(x) for x in parts if isinstance(x, int | float)), default=0)
        return float(0.5 * 10.0**-decimals)


def _decimals(x: Number) -> int:
    text = repr(x)
    return len(text.partition(".")[2]) if "." in text else 0


def _parse(raw: dict[str, Any]) -> PaperValue:
    value = raw["value"]
    return PaperValue(
        id=raw["id"],
        section=str(raw["section"]),
        quantity=raw["quantity"],
        unit=str(raw["unit"]),
        value=tuple(value) if isinstance(value, list) else value,
        sd=raw["sd"],
        n=raw["n"],
        condition=raw["condition"],
        kind=raw["kind"],
        is_range=bool(raw.get("range")),
        is_set=bool(raw.get("set")),
        bound=raw.get("bound"),
    )


@cache
def _load(path: Path) -> dict[str, PaperValue]:
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["values"]
    return {entry["id"]: _parse(entry) for entry in entries}


def load_values() -> dict[str, PaperValue]:
    """Every value, in the paper's order."""
    return _load(data_dir() / "paper_values.yaml")


def paper_value(value_id: str) -> PaperValue:
    """One value.

    Raises:
        ClaimError: no such id; the message names close ones.
    """
    values = load_values()
    if value_id not in values:
        near = get_close_matches(value_id, values, n=3, cutoff=0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else "; see data/paper_values.yaml"
        raise ClaimError(f"no paper value has the id {value_id!r}{hint}")
    return values[value_id]


def matching_ids(*patterns: str) -> list[str]:
    """Ids that fit any of the patterns (`table4.*.ttft_p90`), in the paper's order.

    Raises:
        ClaimError: a pattern fits none.
    """
    values = load_values()
    for pattern in patterns:
        if not any(fnmatchcase(i, pattern) for i in values):
            near = get_close_matches(pattern, values, n=3, cutoff=0.5)
            hint = f"; near: {', '.join(near)}" if near else ""
            raise ClaimError(f"no paper value fits the pattern {pattern!r}{hint}")
    return [i for i in values if any(fnmatchcase(i, p) for p in patterns)]
