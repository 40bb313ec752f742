from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import ClaimError
from vamp.report.rules import Quantity, load_rules
from vamp.report.values import load_values, paper_value
from vamp.report.verdicts import Measured, Verdict, is_cited, judge

H100, H200 = "h100_pcie_tp2", "h200_nvl_tp4"
PAIR: dict[str, Quantity] = {"table4.vllm.ttft_p90": 26.1, "table4.vamp15.ttft_p90": 1.1}


def verdict(
    value_id: str,
    value: Quantity,
    *,
    backend: str = "sim",
    platform: str = H100,
    sd: float | None = None,
    others: dict[str, Quantity] | None = None,
) -> Verdict:
    known = {**PAIR, **(others or {}), value_id: value}
    return judge(Measured(value_id, platform, value, sd), known, backend=backend).verdict


@pytest.mark.parametrize(
    ("value", "expected"),
    [(26.1, "match"), (28.7, "match"), (28.8, "trend"), (70.0, "trend"), (79.0, "miss"), (1.0, "miss")],
)
def test_a_hardware_value_measured_on_hardware(value: float, expected: Verdict) -> None:
    assert verdict("table4.vllm.ttft_p90", value, backend="cuda") == expected


@pytest.mark.parametrize(("value", "expected"), [(26.1, "trend"), (70.0, "trend"), (79.0, "miss"), (1.0, "miss")])
def test_the_same_value_simulated(value: float, expected: Verdict) -> None:
    assert verdict("table4.vllm.ttft_p90", value) == expected


def test_spread_widens_the_match() -> None:
    """max(3 * hypot(0.7, sd), 10 %): with sd = 2 a difference of 6 still matches."""
    assert verdict("table4.vllm.ttft_p90", 32.0, backend="cuda", sd=2.0) == "match"
    assert verdict("table4.vllm.ttft_p90", 32.0, backend="cuda", sd=0.1) == "trend"


def test_the_wrong_order_is_a_miss_however_near() -> None:
    assert verdict("table4.vllm.ttft_p90", 20.0, others={"table4.vamp15.ttft_p90": 21.0}) == "miss"


def test_without_its_partner_only_the_other_checks_count() -> None:
    alone = judge(Measured("table4.vllm.ttft_p90", H100, 26.0), {"table4.vllm.ttft_p90": 26.0}, backend="sim")
    assert alone.verdict == "trend"
    pair_only = judge(
        Measured("fig9.h100.c28.vllm.preemptions", H100, 35),
        {"fig9.h100.c28.vllm.preemptions": 35},
        backend="sim",
    )
    assert pair_only.verdict == "not_run"


def test_another_platform_or_a_tiny_model_never_matches() -> None:
    assert verdict("table4.vllm.ttft_p90", 26.1, backend="cuda", platform="h200_tp2_rank") == "trend"
    assert verdict("table4.vllm.ttft_p90", 26.1, backend="cpu") == "trend"


@pytest.mark.parametrize(("value", "expected"), [(20.7, "match"), (23.8, "match"), (24.0, "trend"), (9.0, "miss")])
def test_a_ratio(value: float, expected: Verdict) -> None:
    assert verdict("table4.diff.request_throughput", value, backend="cuda") == expected


@pytest.mark.parametrize(
    ("value_id", "platform", "value", "expected"),
    [
        ("fig9.h100.vamp15.boundary", H100, 24, "trend"),
        ("fig9.h100.vamp15.boundary", H100, 28, "miss"),
        ("fig9.h100.vamp15.boundary", H100, None, "miss"),
        ("fig9.h100.vamp25.boundary", H100, None, "trend"),
        ("fig9.h100.vamp25.boundary", H100, 28, "miss"),
        ("fig9.h100.vllm.boundary", H100, 16, "trend"),
        ("fig9.h100.vllm.boundary", H100, 20, "miss"),
        ("decisions.c16.invocations", H200, 0, "trend"),
        ("decisions.c16.invocations", H200, 1, "miss"),
    ],
)
def test_crossing_points_are_exact(value_id: str, platform: str, value: Quantity, expected: Verdict) -> None:
    assert verdict(value_id, value, platform=platform) == expected
    exact = verdict(value_id, value, platform=platform, backend="cuda")
    assert exact == ("match" if expected == "trend" else "miss")


@pytest.mark.parametrize(("value", "expected"), [(True, "trend"), (False, "miss"), (1.0, "miss"), (None, "miss")])
def test_a_statement_holds_or_not(value: Quantity, expected: Verdict) -> None:
    assert verdict("fig10a.order.tpot", value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [((9.0, 11.0), "match"), ((8.5, 11.5), "match"), ((8.4, 11), "trend"), ((9, 34), "miss")],
)
def test_a_band_is_widened_by_the_printed_rounding(value: tuple[float, float], expected: Verdict) -> None:
    assert verdict("fig9.h200.band", value, backend="cuda", platform=H200) == expected


@pytest.mark.parametrize(
    ("value_id", "value", "expected"),
    [
        ("table1.h100.expert_weights_per_gpu", 72.0, "match"),
        ("table1.h100.expert_weights_per_gpu", 72.1, "miss"),
        ("coef.c_eff", 12.305, "match"),
        ("table2.vamp20.reclaimed", 14.04, "match"),
        ("table2.vamp20.reclaimed", 14.3, "miss"),
    ],
)
def test_closed_form_may_match_anywhere(value_id: str, value: float, expected: Verdict) -> None:
    assert verdict(value_id, value) == expected


@pytest.mark.parametrize("value_id", ["table1.h100.gpus", "intro.qwen3_next.total_params", "coef.t_overhead"])
def test_nothing_to_measure_is_cited(value_id: str) -> None:
    assert verdict(value_id, 1.0) == "cited"


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(ClaimError, match="no paper value"):
        verdict("table9.x", 1.0)


@given(st.sampled_from(sorted(load_values())), st.floats(-1e6, 1e6), st.sampled_from(["sim", "cpu"]))
def test_no_simulated_number_matches_a_hardware_quantity(value_id: str, value: float, backend: str) -> None:
    """Whatever the number, the paper's own included."""
    rule, paper = load_rules().rule(value_id), paper_value(value_id)
    if rule.kind == "closed_form" or is_cited(paper, rule):
        return
    for own in (value, paper.value):
        got = judge(Measured(value_id, rule.platform, own), {value_id: own}, backend=backend)
        assert got.verdict in ("trend", "miss", "not_run")


@given(st.sampled_from(sorted(load_values())))
def test_on_its_own_hardware_the_paper_matches_itself(value_id: str) -> None:
    rule, paper = load_rules().rule(value_id), paper_value(value_id)
    own = True if rule.kind == "statement" else paper.value
    got = judge(Measured(value_id, rule.platform, own), {value_id: own}, backend="cuda")
    assert got.verdict == ("cited" if is_cited(paper, rule) else "match")
