"""The rules of artifact/tolerances.yaml as typed values. The checks are data: nothing is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import yaml
from pydantic import Field, ValidationError, model_validator

from vamp.config import Frozen, explain
from vamp.errors import ConfigError
from vamp.paths import root
from vamp.report.values import Bound, Interval, Number, PaperValue

Quantity: TypeAlias = Number | Interval | None
RuleKind = Literal["closed_form", "hardware", "ratio", "exact", "statement", "cited"]
Outcome: TypeAlias = bool | None  # None: a partner was not measured, so the check says nothing


def ends(q: Quantity) -> Interval | None:
    """A number as a one-point interval; None stays None."""
    if q is None or isinstance(q, tuple):
        return q
    return (q, q)


def same(paper: Quantity, own: Quantity, bound: Bound | None) -> bool:
    """Equality, None included; a bound is kept when the value does not exceed it."""
    if bound is None or not isinstance(paper, int | float):
        return paper == own
    if not isinstance(own, int | float):
        return False
    return own <= paper if bound == "upper" else own >= paper


class _Check(Frozen):
    """`name` goes into tables, `str` into notes about a failed check."""

    @property
    def name(self) -> str:
        return str(self)


class Order(_Check):
    """The measured values of `ids` rise strictly."""

    check: Literal["order"]
    ids: Annotated[tuple[str, ...], Field(min_length=2)]

    def holds(self, paper: PaperValue, own: Quantity, others: Mapping[str, Quantity]) -> Outcome:
        points = [others.get(i) for i in self.ids]
        numbers = [p for p in points if isinstance(p, int | float)]
        if len(numbers) < len(points):
            return None
        return all(a < b for a, b in pairwise(numbers))

    @property
    def name(self) -> str:
        return "order"

    def __str__(self) -> str:
        return "order " + " < ".join(self.ids)


class Factor(_Check):
    """Measured within [paper / max, paper * max]; of a band, both ends."""

    check: Literal["factor"]
    max: Annotated[float, Field(gt=1)]

    def holds(self, paper: PaperValue, own: Quantity, others: Mapping[str, Quantity]) -> Outcome:
        want, have = ends(paper.value), ends(own)
        if want is None or have is None:
            return False
        return want[0] / self.max <= have[0] and have[1] <= want[1] * self.max

    def __str__(self) -> str:
        return f"factor {self.max:g}"


class Between(_Check):
    """Measured within the stated limits; of a band, both ends."""

    check: Literal["between"]
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Between:
        if self.low is None and self.high is None:
            raise ValueError("between needs low, high or both")
        return self

    def holds(self, paper: PaperValue, own: Quantity, others: Mapping[str, Quantity]) -> Outcome:
        have = ends(own)
        if have is None:
            return False
        return (self.low is None or have[0] >= self.low) and (self.high is None or have[1] <= self.high)

    def __str__(self) -> str:
        low = f">= {self.low:g}" if self.low is not None else ""
        high = f"<= {self.high:g}" if self.high is not None else ""
        return " and ".join(part for part in (low, high) if part)


class Equal(_Check):
    """Equal to the paper's value, or within its bound."""

    check: Literal["equal"]

    def holds(self, paper: PaperValue, own: Quantity, others: Mapping[str, Quantity]) -> Outcome:
        return same(paper.value, own, paper.bound)

    def __str__(self) -> str:
        return "equal"


class Holds(_Check):
    """A statement without a number, measured as true or false."""

    check: Literal["holds"]

    def holds(self, paper: PaperValue, own: Quantity, others: Mapping[str, Quantity]) -> Outcome:
        return own is True

    def __str__(self) -> str:
        return "the statement holds"


Check: TypeAlias = Annotated[Order | Factor | Between | Equal | Holds, Field(discriminator="check")]


class Limits(Frozen):
    sd_factor: Annotated[float, Field(ge=0)]
    hardware_pct: Annotated[float, Field(ge=0)]
    ratio_pct: Annotated[float, Field(ge=0)]


class Rule(Frozen):
    """How the values that fit `ids` are judged; `platform` is where the paper measured them."""

    ids: Annotated[tuple[str, ...], Field(min_length=1)]
    kind: RuleKind
    platform: str = "h100_pcie_tp2"
    within_pct: Annotated[float, Field(ge=0)] | None = None
    trend: tuple[Check, ...] = ()
    why: str = ""

    def fits(self, value_id: str) -> bool:
        return any(fnmatchcase(value_id, pattern) for pattern in self.ids)


class Rules(Frozen):
    version: Literal[1]
    limits: Limits
    rules: tuple[Rule, ...]

    def rule(self, value_id: str) -> Rule:
        """The first rule that fits."""
        return next(r for r in self.rules if r.fits(value_id))

    @model_validator(mode="after")
    def _ends_with_catch_all(self) -> Rules:
        if not self.rules or "*" not in self.rules[-1].ids:
            raise ValueError("the last rule must fit every id ('*')")
        return self


@cache
def _load(path: Path) -> Rules:
    try:
        return Rules.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as err:
        raise ConfigError(explain(err, path.name)) from None


def load_rules() -> Rules:
    """The rules of this checkout.

    Raises:
        ConfigError: names each entry that is wrong.
    """
    return _load(root() / "artifact" / "tolerances.yaml")
