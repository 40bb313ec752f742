import math

from hypothesis import given
from hypothesis import strategies as st

from vamp.experiments.spec import make_spec
from vamp.measure.window import full_window, interval_window, steady_window, window_for

from .conftest import lost, request, result


def test_interval_starts_after_128_turns_and_ends_with_the_first_exit_after_all_started(sessions_of):
    run = result(sessions_of(48, 44), n_turns=2112)
    finishes = sorted(run.requests["finish_s"])
    window = interval_window(run)
    assert (window.name, window.note) == ("interval", "")
    assert window.start_s == finishes[127]
    assert window.end_s == 44 * 2.0  # session 0 ends first, at 88 s; the last session started at 47 s


def test_session_that_ends_before_all_have_started_does_not_close_the_interval(sessions_of):
    early = [request("early", 0, 0.0, 1.0, 1.0)]
    run = result(early + sessions_of(48, 44), n_turns=2113)
    assert interval_window(run).end_s == 88.0
    # Negative control: when its last turn ends after all have started, it does.
    late = [request("early", 0, 0.0, 40.0, 20.0)]
    assert interval_window(result(late + sessions_of(48, 44), n_turns=2113)).end_s == 60.0


def test_session_with_a_failed_turn_never_completes(sessions_of):
    rows = sessions_of(48, 44)
    broken = [lost("s0", 43, r.arrival_s) if (r.session_id, r.turn) == ("s0", 43) else r for r in rows]
    assert interval_window(result(broken, n_turns=2112)).end_s == 89.0  # session 1 instead


def test_short_run_scales_the_warmup_and_says_so(sessions_of):
    run = result(sessions_of(4, 50))
    window = interval_window(run)
    assert window.start_s == sorted(run.requests["finish_s"])[11]  # 128 x 200 / 2,103 = 12.2
    assert window.note == "starts after 12 completed turns of 200 (paper: 128 of 2103)"


def test_run_without_an_interval_is_measured_in_full_and_says_so():
    run = result([request("a", 0, 1.0, 1.0, 1.0), lost("b", 0, 2.0)])
    window = interval_window(run)
    assert window.name == "full"
    assert (window.start_s, window.end_s) == (1.0, 3.0)
    assert "is empty" in window.note


def test_nothing_arrived():
    window = full_window(result([]))
    assert math.isnan(window.start_s)
    assert math.isnan(window.duration_s)
    assert window.arrived(result([]).requests).empty


def test_all_requests_failed_leaves_a_window_and_nothing_finished():
    run = result([lost("a", 0, 0.0), lost("b", 0, 4.0)])
    window = interval_window(run)
    assert (window.start_s, window.end_s) == (0.0, 4.0)
    assert window.completed(run.requests).empty


def test_steady_rule_drops_first_turns_from_timing_only(sessions_of):
    run = result(sessions_of(3, 4))
    window = steady_window(run)
    assert len(window.arrived(run.requests)) == 12
    assert set(window.timed(run.requests)["turn"]) == {1, 2, 3}
    assert set(full_window(run).timed(run.requests)["turn"]) == {0, 1, 2, 3}


def test_window_follows_the_workload(sessions_of):
    run = result(sessions_of(48, 44), n_turns=2112)
    kinds = {
        "replay": {"kind": "replay"},
        "inhouse": {"kind": "inhouse", "concurrency": 3},
        "trace": {"kind": "trace", "trace_path": "x.jsonl"},
    }
    names = {kind: window_for(run, make_spec(workload=load)).name for kind, load in kinds.items()}
    assert names == {"replay": "interval", "inhouse": "steady", "trace": "full"}


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=40))
def test_interval_lies_inside_the_full_run(times):
    run = result([request(f"s{i % 5}", i // 5, *t) for i, t in enumerate(times)])
    inner, whole = interval_window(run), full_window(run)
    assert whole.start_s <= inner.start_s <= inner.end_s <= whole.end_s
    assert len(inner.completed(run.requests)) <= len(whole.completed(run.requests)) == len(times)
