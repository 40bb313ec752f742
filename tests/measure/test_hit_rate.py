import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.measure.hit_rate import counter_delta, counter_hit_rate_pct, request_hit_rate_pct
from vamp.measure.window import Window

from .conftest import lost, point, request, result

# Three rounds of 100 prompt tokens each. Round 1 is cold. In round 2 admission fails twice before it
# succeeds, and each attempt queries all 100 tokens and finds 60. Round 3 finds 80 at once.
ROUNDS = [
    point(0.0),
    point(1.0, queries=100, hits=0, output=10),
    point(2.0, queries=400, hits=180, output=20),
    point(3.0, queries=500, hits=260, output=30),
]


def timeline(points):
    return result([], points).timeline


def test_rate_is_hits_over_queries_inside_the_window():
    assert counter_hit_rate_pct(timeline(ROUNDS), Window("full", 0.0, 3.0)) == pytest.approx(52.0)
    assert counter_hit_rate_pct(timeline(ROUNDS), Window("full", 1.0, 3.0)) == pytest.approx(65.0)
    assert counter_hit_rate_pct(timeline(ROUNDS), Window("full", 2.0, 3.0)) == pytest.approx(80.0)


def test_rate_per_request_ignores_repeated_admission_attempts():
    requests = result([request("a", t, float(t), 0.5, 0.1, cached_tok=c) for t, c in enumerate((0, 60, 80))]).requests
    assert request_hit_rate_pct(requests) == pytest.approx(140 / 3)


def test_rate_per_request_leaves_out_requests_that_never_ran():
    requests = result([request("a", 0, 0.0, 1.0, 1.0, cached_tok=50), lost("b", 0, 0.0)]).requests
    assert request_hit_rate_pct(requests) == 50.0


def test_value_at_a_time_is_the_last_sample_before_it():
    assert counter_delta(timeline(ROUNDS), "output_tok", Window("full", 0.5, 2.9)) == 20.0


def test_nothing_queried_is_nan_not_zero():
    assert math.isnan(counter_hit_rate_pct(timeline([]), Window("full", 0.0, 1.0)))
    assert math.isnan(counter_hit_rate_pct(timeline(ROUNDS), Window("full", 3.0, 3.0)))
    assert math.isnan(counter_hit_rate_pct(timeline(ROUNDS), Window("full", math.nan, math.nan)))
    assert math.isnan(request_hit_rate_pct(result([]).requests))
    # Negative control: queried without a hit is zero.
    assert counter_hit_rate_pct(timeline(ROUNDS), Window("full", 0.0, 1.0)) == 0.0


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20), st.data())
def test_deltas_of_adjacent_windows_add_up(growths, data):
    total, points = 0, []
    for t, growth in enumerate(growths):
        total += growth
        points.append(point(float(t), output=total))
    cut = data.draw(st.floats(0, len(growths) - 1))
    frame, end = timeline(points), float(len(growths))
    parts = [counter_delta(frame, "output_tok", Window("full", a, b)) for a, b in ((-1.0, cut), (cut, end))]
    assert sum(parts) == total
