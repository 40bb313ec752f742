import json
import math

import pytest

from vamp.experiments.spec import make_spec
from vamp.measure.summary import summarise
from vamp.measure.window import Window

from .conftest import lost, point, request, result

TRACE = make_spec(workload={"kind": "trace", "trace_path": "x.jsonl"}, ratio_pct=15)
INHOUSE = make_spec(workload={"kind": "inhouse", "concurrency": 2})
CONTRACT = [
    "requests",
    "failed",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "queue_mean_s",
    "tpot_ms",
    "output_tokens_per_s",
    "requests_per_s",
    "hit_rate_pct",
    "preemptions_per_1k",
    "boundary_ratio_pct_mean",
]


def small_run():
    """Two sessions of two turns, 10 s in all: first turns wait 4 s, later ones 1 s; one more fails."""
    requests = [
        request("a", 0, 0.0, 4.0, 1.0, n_preemptions=1),
        request("b", 0, 0.0, 4.0, 1.0),
        request("a", 1, 6.0, 1.0, 2.0, cached_tok=80, n_preemptions=1),
        request("b", 1, 6.0, 1.0, 3.0, cached_tok=80),
        lost("c", 0, 7.0),
    ]
    timeline = [point(5.0, queries=200, hits=0, output=22), point(10.0, queries=400, hits=160, output=44)]
    run = result(requests, timeline, boundary_ratio_pct_mean=7.5)
    run.preemption_s = [1.0, 6.5]
    run.decisions = [{"choice": "offload"}, {"choice": "evict"}, {"choice": "offload"}, {"choice": None}]
    return run


def test_every_value_worked_out_by_hand():
    row = summarise(small_run(), TRACE)
    assert (row.window, row.window_start_s, row.window_end_s) == ("full", 0.0, 10.0)
    assert (row.requests, row.failed, row.n_preemptions) == (5, 1, 2)
    assert row.ttft_p50_s == pytest.approx(2.5)
    assert row.queue_mean_s == pytest.approx(1.25)
    assert row.tpot_ms == pytest.approx((100 + 100 + 200 + 300) / 4)
    assert row.output_tokens_per_s == pytest.approx(4.4)
    assert row.requests_per_s == pytest.approx(0.4)
    assert row.hit_rate_pct == pytest.approx(40.0)
    assert row.hit_rate_per_request_pct == pytest.approx(40.0)
    assert row.preemptions_per_1k == pytest.approx(400.0)
    assert row.boundary_ratio_pct_mean == 7.5
    assert row.decisions == {"offload": 2, "evict": 1, "none": 1}


def test_steady_rule_times_later_turns_and_keeps_the_rates():
    row, full = summarise(small_run(), INHOUSE), summarise(small_run(), TRACE)
    assert row.window == "steady"
    assert row.ttft_p99_s == pytest.approx(1.0)
    assert full.ttft_p99_s == pytest.approx(4.0)
    assert (row.tpot_ms, row.requests_per_s, row.requests) == (
        full.tpot_ms,
        full.requests_per_s,
        full.requests,
    )


def test_given_window_limits_all_but_tpot():
    row = summarise(small_run(), TRACE, Window("full", 5.5, 10.0))
    assert (row.requests, row.failed) == (3, 1)
    assert row.ttft_p99_s == pytest.approx(1.0)
    assert row.requests_per_s == pytest.approx(2 / 4.5)
    assert row.hit_rate_pct == pytest.approx(80.0)
    assert row.tpot_ms == summarise(small_run(), TRACE).tpot_ms


def test_json_has_the_contract_keys_first_and_null_for_nan():
    plain = summarise(result([lost("a", 0, 1.0)]), TRACE).as_json()
    assert list(plain)[: len(CONTRACT)] == CONTRACT
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    unknown = {key for key, value in plain.items() if value is None}
    assert {"ttft_p99_s", "tpot_ms", "queue_mean_s", "hit_rate_pct", "output_tokens_per_s"} <= unknown
    assert (plain["requests"], plain["failed"]) == (1, 1)


def test_empty_run_has_no_value_anywhere():
    row = summarise(result([]), TRACE)
    assert row.requests == 0
    assert all(math.isnan(v) for v in (row.ttft_p50_s, row.requests_per_s, row.preemptions_per_1k, row.tpot_ms))
