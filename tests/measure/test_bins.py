"""Bins of time: exact on step functions, checked against a fine sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.made_up import run
from vamp.experiments.spec import make_spec
from vamp.measure.bins import binned, time_means


def test_a_state_holds_until_the_next_sample() -> None:
    t, v = np.array([0.0, 4.0, 10.0, 20.0]), np.array([1.0, 3.0, 0.0, 9.0])
    assert time_means(t, v, np.array([0.0, 10.0, 20.0])).tolist() == pytest.approx([(4 * 1 + 6 * 3) / 10, 0.0])
    assert time_means(t, v, np.array([2.0, 6.0])).tolist() == pytest.approx([(2 * 1 + 2 * 3) / 4])


def test_what_samples_do_not_cover_is_nan_or_left_out() -> None:
    t, v = np.array([5.0, 10.0]), np.array([2.0, 7.0])
    means = time_means(t, v, np.array([0.0, 4.0, 8.0, 12.0, 16.0]))
    assert np.isnan(means[[0, 3]]).all() and means[1:3].tolist() == [2.0, 2.0]
    assert np.isnan(time_means(t[:1], v[:1], np.array([0.0, 1.0]))).all()


@given(st.lists(st.tuples(st.floats(0.1, 5.0), st.floats(0, 50)), min_size=2, max_size=30))
def test_bins_add_up_to_the_whole(samples: list[tuple[float, float]]) -> None:
    t = np.cumsum([step for step, _ in samples])
    v = np.array([value for _, value in samples])
    edges = np.linspace(t[0], t[-1], 6)
    whole = float((v[:-1] * np.diff(t)).sum())
    assert float((time_means(t, v, edges) * np.diff(edges)).sum()) == pytest.approx(whole, abs=1e-6)


def test_counts_fall_into_their_bins() -> None:
    made = run(make_spec(workload={"kind": "agents"}), ttft_s=2.0, preemptions=1)
    made.preemption_s = [0.5, 1.0, 7.0]
    rows = binned(made, 5.0, 20.0)
    first_s = made.requests["first_token_s"]
    assert rows["preemptions"].tolist() == [2, 1, 0, 0]
    assert rows["requests"].tolist() == [int(first_s.between(a, a + 5 - 1e-9).sum()) for a in (0, 5, 10, 15)]
    assert rows["ttft_mean_s"].dropna().tolist() == pytest.approx([2.0] * int(rows["ttft_mean_s"].notna().sum()))
    used = 1 - 10 / (made.timeline["pool_blk"].iloc[0] - 1)
    assert rows["kv_util"].iloc[0] == pytest.approx(used, abs=1e-4)
    assert rows["waiting"].iloc[0] == 0 and rows["running"].iloc[0] == 1
