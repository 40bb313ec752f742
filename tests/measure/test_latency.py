import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.measure import latency
from vamp.measure.records import RunResult

from .conftest import lost, request


def frame(*records):
    return RunResult.requests_frame(list(records))


def test_ttft_counts_from_the_client_and_queue_time_from_the_scheduler():
    requests = frame(request("a", 0, 5.0, 2.0, 1.0, queued_s=5.25))
    assert latency.ttft_s(requests).tolist() == [2.0]
    assert latency.queue_s(requests).tolist() == [0.75]


def test_first_token_is_no_inter_token_interval():
    # Three tokens have two intervals. With TTFT among them the mean would be (10 + 1 + 1) / 3 = 4 s.
    requests = frame(request("a", 0, 0.0, 10.0, 2.0, output_tok=3))
    assert latency.tpot_ms(requests).tolist() == [1000.0]


def test_one_token_reply_has_no_tpot():
    assert len(latency.tpot_ms(frame(request("a", 0, 0.0, 1.0, 0.0, output_tok=1)))) == 0


def test_tpot_is_the_mean_over_requests_not_over_tokens():
    requests = frame(request("a", 0, 0.0, 1.0, 0.1, output_tok=2), request("b", 0, 0.0, 1.0, 30.0, output_tok=101))
    assert latency.mean(latency.tpot_ms(requests)) == pytest.approx((100 + 300) / 2)


def test_failed_requests_are_counted_and_never_timed_as_zero():
    good = [request(f"g{i}", 0, float(i), 2.0, 1.0) for i in range(9)]
    requests = frame(*good, lost("bad", 0, 3.0))
    assert latency.n_failed(requests) == 1
    assert latency.percentiles(latency.ttft_s(requests), [0, 50]) == (2.0, 2.0)


def test_request_cut_off_after_its_first_token_is_failed():
    requests = frame(request("a", 0, 0.0, 1.0, 1.0, finish_s=None, error="unfinished"))
    assert latency.n_failed(requests) == 1
    assert len(latency.ttft_s(requests)) == 0


def test_nothing_to_measure_is_nan():
    requests = frame(lost("a", 0, 0.0))
    assert all(map(math.isnan, latency.percentiles(latency.ttft_s(requests), (50, 99))))
    assert math.isnan(latency.mean(latency.tpot_ms(requests)))


ttfts = st.lists(st.floats(0.001, 1e3), min_size=1, max_size=30)


@given(ttfts, st.integers(0, 10))
def test_failed_requests_change_no_percentile(values, n_lost):
    good = [request("a", i, 0.0, v, 1.0) for i, v in enumerate(values)]
    bad = [lost("b", i, 0.0) for i in range(n_lost)]
    percents = (50, 90, 99)
    with_bad = latency.percentiles(latency.ttft_s(frame(*good, *bad)), percents)
    assert with_bad == latency.percentiles(latency.ttft_s(frame(*good)), percents)
    # Negative control: one more finished request, slower than all, does move p99.
    slower = request("c", 0, 0.0, 2 * max(values) + 1, 1.0)
    assert latency.percentiles(latency.ttft_s(frame(*good, slower)), percents)[2] > with_bad[2]


@given(ttfts)
def test_percentiles_rise_and_stay_inside_the_values(values):
    p = latency.percentiles(np.array(values), (50, 90, 99))
    assert min(values) <= p[0] <= p[1] <= p[2] <= max(values)
