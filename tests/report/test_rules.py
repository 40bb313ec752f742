from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from vamp.errors import ConfigError
from vamp.report.rules import Between, Equal, Factor, Order, Rules, load_rules
from vamp.report.values import load_values, paper_value
from vamp.report.verdicts import NOTHING_TO_MEASURE, is_cited

ANY = paper_value("table4.vllm.ttft_p90")  # 26.1


def test_every_measurable_value_has_a_rule() -> None:
    rules = load_rules()
    without = [
        value.id
        for value in load_values().values()
        if value.kind not in NOTHING_TO_MEASURE and rules.rule(value.id).kind == "cited"
    ]
    assert without == ["bg.kv_10k_request.tokens", "fig11.steps"]  # conditions of an example and of a profile


def test_every_hardware_rule_can_fail() -> None:
    """A value that a simulation measures needs a trend check, or everything would be a miss."""
    rules = load_rules()
    covered = ("table4.", "fig9.", "decisions.", "headline.ttft", "replay.")
    for value in load_values().values():
        rule = rules.rule(value.id)
        if value.id.startswith(covered) and not is_cited(value, rule):
            assert rule.trend, value.id


def test_order_checks_state_the_papers_own_order() -> None:
    checks = [c for r in load_rules().rules for c in r.trend if isinstance(c, Order)]
    assert len(checks) >= 10
    for check in checks:
        printed = [paper_value(i).value for i in check.ids]
        assert printed == sorted(printed) and len(set(printed)) == len(printed), check.ids


def test_the_paper_itself_passes_every_trend_check() -> None:
    rules = load_rules()
    everything = {v.id: v.value for v in load_values().values()}
    for value in load_values().values():
        rule = rules.rule(value.id)
        own = True if rule.kind == "statement" else value.value
        if not is_cited(value, rule):
            assert all(c.holds(value, own, everything) for c in rule.trend), value.id


def test_order() -> None:
    check = Order(check="order", ids=("a", "b"))
    assert check.holds(ANY, 1, {"a": 1, "b": 2}) is True
    assert check.holds(ANY, 1, {"a": 2, "b": 2}) is False
    assert check.holds(ANY, 1, {"a": 1}) is None
    assert check.holds(ANY, 1, {"a": 1, "b": None}) is None


@pytest.mark.parametrize(("own", "holds"), [(26.1, True), (8.71, True), (78.2, True), (8.69, False), (78.4, False)])
def test_factor(own: float, holds: bool) -> None:
    assert Factor(check="factor", max=3).holds(ANY, own, {}) is holds


def test_factor_on_a_band_looks_at_both_ends() -> None:
    band, check = paper_value("fig9.h200.band"), Factor(check="factor", max=2)
    assert check.holds(band, (4.5, 22), {}) is True
    assert check.holds(band, (4.4, 10), {}) is False
    assert check.holds(band, (9, 22.1), {}) is False
    assert check.holds(band, None, {}) is False


def test_between() -> None:
    check = Between(check="between", low=10, high=35)
    assert [check.holds(ANY, x, {}) for x in (9.9, 10, 35, 35.1, None)] == [False, True, True, False, False]


def test_equal_knows_none_and_bounds() -> None:
    check = Equal(check="equal")
    crossed_late, never = paper_value("fig9.h100.vllm.boundary"), paper_value("fig9.h100.vamp25.boundary")
    assert [check.holds(crossed_late, x, {}) for x in (12, 16, 20, None)] == [True, True, False, False]
    assert [check.holds(never, x, {}) for x in (None, 28)] == [True, False]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"trend": [{"check": "between"}]}, "low, high or both"),
        ({"trend": [{"check": "factor", "max": 1}]}, "greater than 1"),
        ({"trend": [{"check": "eval", "code": "1"}]}, "check"),
        ({"kind": "perhaps"}, "kind"),
        ({"tolerance": 3}, "tolerance"),
    ],
)
def test_a_wrong_rule_is_named(checkout: Path, change: dict[str, object], named: str) -> None:
    path = checkout / "artifact" / "tolerances.yaml"
    raw = yaml.safe_load(path.read_text())
    raw["rules"][0] |= change
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError, match=named):
        load_rules()


def test_the_last_rule_must_catch_all() -> None:
    raw = {"version": 1, "limits": {"sd_factor": 3, "hardware_pct": 10, "ratio_pct": 15}, "rules": []}
    with pytest.raises(ValueError, match="must fit every id"):
        Rules.model_validate(raw)
