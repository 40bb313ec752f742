"""match, trend, miss, not_run or cited: a measured value against the paper's, by artifact/tolerances.yaml."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vamp.report.rules import Limits, Quantity, Rule, Rules, ends, load_rules, same
from vamp.report.values import PaperValue, paper_value

Verdict = Literal["match", "trend", "miss", "not_run", "cited"]
VERDICTS: tuple[Verdict, ...] = ("match", "trend", "miss", "not_run", "cited")
HARDWARE_BACKENDS = frozenset({"cuda", "recorded"})
NOTHING_TO_MEASURE = frozenset({"setup", "coefficient", "cited", "illustration", "missing"})


@dataclass(frozen=True, slots=True)
class Measured:
    """What we got for one id.

    Attributes:
        value: a number, an interval for a band, True or False for a statement, or None where the measurement
            says "none" (no boundary).
        sd: over runs. n: runs behind it.
    """

    id: str
    platform: str
    value: Quantity
    sd: float | None = None
    n: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the rule in words, and what failed or was left out."""

    verdict: Verdict
    tolerance: str
    note: str = ""


def is_cited(paper: PaperValue, rule: Rule) -> bool:
    """Set-up values and quotations have nothing to measure, unless a rule computes them in closed form."""
    if rule.kind == "closed_form":
        return paper.value is None
    return rule.kind == "cited" or paper.kind in NOTHING_TO_MEASURE


def allowed_delta(paper: PaperValue, sd_own: float | None, rule: Rule, limits: Limits) -> float:
    """Largest |delta| that still is a match, in the value's unit."""
    size = max(abs(x) for x in ends(paper.value) or (0.0,))
    if rule.kind == "closed_form":
        return max(paper.half_unit, (rule.within_pct or 0.0) / 100 * size)
    if rule.kind == "ratio":
        return limits.ratio_pct / 100 * size
    if paper.is_range:
        return paper.half_unit
    spread = limits.sd_factor * math.hypot(paper.sd or 0.0, sd_own or 0.0)
    return max(spread, limits.hardware_pct / 100 * size)


def agrees(paper: PaperValue, own: Measured, rule: Rule, limits: Limits) -> bool:
    """Whether the value is a match, leaving aside who measured it."""
    if rule.kind == "exact":
        return same(paper.value, own.value, paper.bound)
    if rule.kind == "statement":
        return own.value is True
    want, have = ends(paper.value), ends(own.value)
    if want is None or have is None:
        return False
    slack = allowed_delta(paper, own.sd, rule, limits) * (1 + 1e-9)
    low_ok = paper.bound == "upper" or have[0] >= want[0] - slack
    high_ok = paper.bound == "lower" or have[1] <= want[1] + slack
    return low_ok and high_ok


def tolerance_text(paper: PaperValue, sd_own: float | None, rule: Rule, limits: Limits) -> str:
    """The rule in words, for the tables."""
    if is_cited(paper, rule):
        return ""
    words = {"exact": "equal", "statement": "it holds"}
    match = words.get(rule.kind) or f"±{allowed_delta(paper, sd_own, rule, limits):.3g}"
    trend = ", ".join(check.name for check in rule.trend)
    return f"match: {match}" + (f"; trend: {trend}" if trend else "")


def judge(own: Measured, others: Mapping[str, Quantity], *, backend: str, rules: Rules | None = None) -> Judgement:
    """Judge one measured value.

    Args:
        others: every value measured in the same notebook, by id, this one included.
        backend: the engine; only HARDWARE_BACKENDS, on the paper's platform, may match a hardware quantity.

    Raises:
        ClaimError: unknown id.
    """
    rules = rules or load_rules()
    paper, rule = paper_value(own.id), rules.rule(own.id)
    text = tolerance_text(paper, own.sd, rule, rules.limits)
    if is_cited(paper, rule):
        return Judgement("cited", text)
    own_hardware = backend in HARDWARE_BACKENDS and own.platform == rule.platform
    if (rule.kind == "closed_form" or own_hardware) and agrees(paper, own, rule, rules.limits):
        return Judgement("match", text, own.note)
    return _trend_or_miss(paper, own, others, rule, text)


def _trend_or_miss(
    paper: PaperValue, own: Measured, others: Mapping[str, Quantity], rule: Rule, text: str
) -> Judgement:
    outcomes = [(check, check.holds(paper, own.value, others)) for check in rule.trend]
    told = [(check, outcome) for check, outcome in outcomes if outcome is not None]
    failed = [str(check) for check, outcome in told if not outcome]
    if failed:
        return Judgement("miss", text, "; ".join(part for part in ("fails " + ", ".join(failed), own.note) if part))
    if told:
        return Judgement("trend", text, own.note)
    if rule.trend:
        return Judgement("not_run", text, "the values it is compared with were not measured")
    return Judgement("miss", text, own.note)
