"""Equations 1 to 5 against the paper's printed coefficients and against values worked out by hand."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vamp.config import CostModel
from vamp.paths import data_dir
from vamp.policy import costs

share = st.floats(0, 1)
age = st.integers(0, 10**6)


def paper(value_id: str) -> float:
    values = yaml.safe_load((data_dir() / "paper_values.yaml").read_text(encoding="utf-8"))["values"]
    return next(v["value"] for v in values if v["id"] == value_id)


@pytest.mark.parametrize(
    ("value_id", "ours"),
    [
        ("coef.alpha", CostModel().alpha),
        ("coef.tau", CostModel().tau_steps),
        ("coef.t_prefill", CostModel().t_prefill_us),
        ("coef.t_sched", CostModel().t_sched_us),
        ("coef.t_queue_init", CostModel().t_queue_init_us),
        ("coef.c_reload", CostModel().c_reload_us / 1e3),
        ("coef.k", CostModel().top_k),
        ("coef.c_eff", round(CostModel().c_eff_us(512), 1)),
        ("coef.w_clamp", [CostModel().w_min_steps, CostModel().w_max_steps]),
    ],
)
def test_defaults_are_the_printed_coefficients(value_id: str, ours: object) -> None:
    assert ours == paper(value_id)


def test_p_eff_halves_at_age_tau() -> None:
    assert costs.p_eff(0.5, 0.9, 0, 2000) == pytest.approx(0.45)
    assert costs.p_eff(0.5, 0.9, 2000, 2000) == pytest.approx(0.225)


@given(share, share, st.lists(age, max_size=40), st.floats(1, 1e5))
def test_many_blocks_are_equation_1_block_by_block(alpha: float, r_hit: float, ages: list[int], tau: float) -> None:
    one_by_one = [costs.p_eff(alpha, r_hit, a, tau) for a in ages]
    assert costs.p_eff_each(alpha, r_hit, ages, tau) == pytest.approx(one_by_one)


@given(share, share, age, age)
def test_older_blocks_are_never_dearer(alpha: float, r_hit: float, a: int, b: int) -> None:
    young, old = sorted((a, b))
    assert costs.p_eff(alpha, r_hit, old, 2000) <= costs.p_eff(alpha, r_hit, young, 2000)


def test_printed_medians_follow_from_a_chunk_of_32_blocks() -> None:
    """VI-D: C_e = 52.7 ms is 17 groups of 4 shards staged for 63 steps; C_c = 44.9 ms is 32 blocks of 272 tokens."""
    c_eff = CostModel().c_eff_us(512)
    assert costs.offload_cost_us(17 * 4, 512, c_eff, 63) / 1e3 == pytest.approx(52.7, abs=0.05)
    p = 44.9e3 / (32 * 272 * 15 + 500)
    assert 0.3 < p < 0.5  # a hit rate near 0.9 and an age of some hundred steps
    assert costs.eviction_cost_us(p, 32 * 272, 15, 500) == pytest.approx(44.9e3)


def test_offload_score_is_capped_at_e() -> None:
    assert costs.offload_cost_us(513, 512, 12.3, 1) == costs.offload_cost_us(512, 512, 12.3, 1)
    assert costs.offload_cost_us(511, 512, 12.3, 1) < costs.offload_cost_us(512, 512, 12.3, 1)


def test_preemption_grows_with_victims() -> None:
    assert costs.preemption_cost_us(500, 1000, 100, 15, 1) == 3000
    assert costs.preemption_cost_us(500, 1000, 100, 15, 3) == 9000


def test_combined_is_the_sum() -> None:
    assert costs.combined_cost_us(3.0, 4.0) == 7.0
