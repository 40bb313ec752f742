"""Fits find the coefficients that made the data, and those of the rank platform follow from what was recorded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.calibrate.fit import (
    TimedStep,
    fit_decode,
    fit_prefill,
    fit_routed_gbps,
    launch_floor_ms,
    touched_share,
)
from vamp.errors import ConfigError
from vamp.paths import data_dir
from vamp.sim.platforms import load_platform

TOP_K, EXPERTS, CONTEXT_TOK = 10, 512, 544
RECORDED = json.loads((data_dir() / "recorded" / "h200_tp2_rank_engine.json").read_text())
RANK = load_platform("h200_tp2_rank").step_time


def decode_steps(step_ms: float, read_ms: float, seq_ms: float) -> list[TimedStep]:
    return [
        TimedStep(0, n, 0, 0, step_ms + read_ms * touched_share(n, TOP_K, EXPERTS) + seq_ms * n)
        for n in (1, 4, 8, 16, 32, 64)
    ]


@given(st.floats(1, 20), st.floats(1, 40), st.floats(0.01, 1))
def test_decode_coefficients_come_back(step_ms: float, read_ms: float, seq_ms: float) -> None:
    fit = fit_decode(decode_steps(step_ms, read_ms, seq_ms), TOP_K, EXPERTS)
    assert list(fit.coefficients.values()) == pytest.approx([step_ms, read_ms, seq_ms], rel=1e-3, abs=1e-3)
    assert max(map(abs, fit.residuals_pct["decode"])) < 0.1


def test_residuals_show_what_does_not_fit() -> None:
    steps = decode_steps(4, 16, 0.05)
    odd = [*steps[:3], TimedStep(0, 16, 0, 0, 2 * steps[3].ms), *steps[4:]]
    assert max(map(abs, fit_decode(odd, TOP_K, EXPERTS).residuals_pct["decode"])) > 10


@given(st.floats(5, 30), st.floats(10, 400))
def test_prefill_coefficients_come_back_from_steps_bound_by_the_device(us_per_tok: float, ps: float) -> None:
    decode = fit_decode(decode_steps(4, 16, 0.05), TOP_K, EXPERTS)
    shapes = [(4000, 0), (8000, 0), (8000, 20_000), (8000, 50_000)]
    steps = [
        TimedStep(n, 0, 0, n * (c + n // 2), 20 + n * us_per_tok * 1e-3 + n * (c + n // 2) * ps * 1e-9)
        for n, c in shapes
    ]
    launched = TimedStep(200, 0, 0, 20_000, 15.0)  # bound by the host: must not count
    fit = fit_prefill([*steps, launched], decode, launch_ms=15.0, top_k=TOP_K, n_experts=EXPERTS, attention_ps=None)
    assert list(fit.coefficients.values()) == pytest.approx([us_per_tok, ps], rel=0.01)
    known = fit_prefill(steps[:2], decode, launch_ms=15.0, top_k=TOP_K, n_experts=EXPERTS, attention_ps=ps)
    assert known.coefficients == {"prefill_us_per_tok": pytest.approx(us_per_tok, rel=0.01)}


def test_the_rank_platform_has_the_fit_of_the_recorded_steps() -> None:
    plain = {row["n"]: row["median_ms"] for row in RECORDED["decode_plain"]}
    steps = [TimedStep(0, n, n * CONTEXT_TOK, 0, ms) for n, ms in plain.items()]
    fit = fit_decode(steps, TOP_K, EXPERTS, RANK.context_ns_per_tok)
    for name, value in fit.coefficients.items():
        assert getattr(RANK, name) == pytest.approx(value, rel=0.01), name
    assert max(map(abs, fit.residuals_pct["decode"])) < 4
    staged = [
        (TimedStep(0, row["n"], 0, 0, row["median_ms"], row["step_bytes"]), plain[row["n"]])
        for row in RECORDED["decode_routed"]
    ]
    assert RANK.routed_gbps == pytest.approx(fit_routed_gbps(staged).coefficients["routed_gbps"], rel=0.01)
    assert RANK.h2d_gbps == pytest.approx(RECORDED["costs"]["bulk_bytes_per_s"] / 1e9, rel=0.01)


def test_launch_floor() -> None:
    steps = [TimedStep(n, 0, 0, 0, ms) for n, ms in ((200, 110.0), (1000, 112.0), (4000, 111.0), (8000, 150.0))]
    assert launch_floor_ms(steps) == 110.5


def test_too_little_is_refused() -> None:
    steps = decode_steps(4, 16, 0.05)
    with pytest.raises(ConfigError, match="2 batch sizes"):
        fit_decode([*steps[:2], steps[0]], TOP_K, EXPERTS)
    with pytest.raises(ConfigError, match="no step outside"):
        launch_floor_ms([])
    with pytest.raises(ConfigError, match="no decode step staged"):
        fit_routed_gbps([(steps[0], 4.0)])
    fit = fit_decode(steps, TOP_K, EXPERTS)
    with pytest.raises(ConfigError, match="launches"):
        fit_prefill(
            [TimedStep(100, 0, 0, 0, 5.0)], fit, launch_ms=5.0, top_k=TOP_K, n_experts=EXPERTS, attention_ps=None
        )
