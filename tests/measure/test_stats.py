import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.measure.stats import bootstrap_ci, estimate

values = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=10)


@given(values)
def test_mean_and_sample_sd_agree_with_the_standard_library(x):
    found = estimate(x)
    assert found.mean == pytest.approx(statistics.fmean(x), rel=1e-9, abs=1e-6)
    assert found.sd == pytest.approx(statistics.stdev(x), rel=1e-6, abs=1e-6)
    assert found.n == len(x)


def test_sd_divides_by_n_minus_one():
    assert estimate([1.0, 3.0]).sd == pytest.approx(math.sqrt(2))
    assert estimate([1.0, 3.0]).sd != pytest.approx(1.0)  # what n would give


def test_too_few_runs_have_no_spread():
    assert estimate([4.0]).mean == 4.0
    assert math.isnan(estimate([4.0]).sd)
    assert estimate([]).n == 0
    assert math.isnan(estimate([]).mean)
    assert all(map(math.isnan, bootstrap_ci([4.0])))


def test_run_without_a_value_is_no_observation():
    assert estimate([1.0, math.nan, 3.0]) == (2.0, math.sqrt(2), 2)


def test_interval_holds_the_mean_and_is_the_same_again():
    x = [26.1, 25.4, 26.9, 27.3, 25.8]
    low, high = bootstrap_ci(x)
    assert low < estimate(x).mean < high
    assert (low, high) == bootstrap_ci(x)
    assert (low, high) != bootstrap_ci(x, confidence=0.5)


def test_equal_runs_give_a_point():
    assert bootstrap_ci([2.0, 2.0, 2.0]) == (2.0, 2.0)
