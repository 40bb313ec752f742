"""The whole simulator on small workloads: conservation, determinism, the cliff, and its refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.sim.workload import sessions
from vamp.errors import CapacityError, RunError
from vamp.experiments.spec import RunSpec, make_spec
from vamp.measure import latency
from vamp.measure.records import CUT, RunResult
from vamp.sim.platforms import Platform, load_platform
from vamp.sim.run import check_fits, run_spec, simulate
from vamp.workloads.trace import Trace

SMALL = replace(load_platform("h100_pcie_tp2"), base_blk=120)


def spec(**changes: Any) -> RunSpec:
    return make_spec(**({"workload": {"kind": "replay"}} | changes))


def run(trace: Trace, platform: Platform = SMALL, **changes: Any) -> RunResult:
    return simulate(spec(**changes), platform, trace)


@pytest.mark.parametrize("ratio", [0, 15])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_every_turn_finishes_in_order(ratio: float, asynchronous: bool) -> None:
    trace = sessions(6, 5, 2_000)
    r = run(trace, ratio_pct=ratio, async_scheduling=asynchronous)
    q = r.requests
    assert len(q) == trace.n_turns
    assert (q.error == "").all()
    assert (q.arrival_s <= q.queued_s).all()
    assert (q.queued_s <= q.scheduled_s).all()
    assert (q.scheduled_s < q.first_token_s).all()
    assert (q.first_token_s < q.finish_s).all()
    assert (q.cached_tok < q.prompt_tok).all()
    for _, one in q.groupby("session_id"):
        assert (one.arrival_s.to_numpy()[1:] >= one.finish_s.to_numpy()[:-1]).all()
    assert int(r.timeline.output_tok.max()) <= int(q.output_tok.sum())


def test_same_seed_same_run_and_another_seed_another() -> None:
    trace = sessions(4, 4, 2_000)
    one, two, other = (run(trace, ratio_pct=15, seed=s) for s in (3, 3, 4))
    pd.testing.assert_frame_equal(one.requests, two.requests)
    assert not one.requests.finish_s.equals(other.requests.finish_s)


def test_enough_memory_makes_vamp_identical_to_vllm() -> None:
    trace = sessions(4, 4, 2_000)
    platform = load_platform("h100_pcie_tp2")
    plain, vamp = run(trace, platform), run(trace, platform, ratio_pct=25)
    assert vamp.meta["invocations"] == 0
    pd.testing.assert_frame_equal(plain.requests, vamp.requests)


def test_too_little_memory_collapses_vllm_and_not_vamp() -> None:
    trace = sessions(8, 6, 2_500)
    plain, vamp = run(trace), run(trace, ratio_pct=25)
    later = slice(8 * 3, None)
    hit = [r.requests.cached_tok[later].sum() / r.requests.prompt_tok[later].sum() for r in (plain, vamp)]
    assert hit[0] < 0.3 < 0.7 < hit[1]
    assert vamp.meta["n_groups_max"] > 0
    assert vamp.meta["pool_blk"] > plain.meta["pool_blk"] == 120


def test_a_request_that_can_never_fit_is_refused_before_anything_runs() -> None:
    trace = sessions(1, 1, 119 * 544)
    with pytest.raises(CapacityError, match=r"'s0' needs .* more than the pool's"):
        run(trace)
    assert run(trace, ratio_pct=15).requests.finish_s.notna().all()  # VAMP's pool can take it
    with pytest.raises(CapacityError, match="context of 262144"):
        check_fits(("s0", 262_164), load_platform("h200_nvl_tp4"), 30_000, 262_144)


def test_agents_work_until_the_time_is_up_and_what_is_under_way_is_not_failed() -> None:
    few = {
        "tasks": 4,
        "agents": 3,
        "first_tok": 2_000,
        "reply_tok": 30,
        "tool_tok": 300,
        "tool_s": 2,
        "history_tok": 8_000,
    }
    load = {"kind": "agents", "overrides": few}
    one, two, moved = (run_spec(spec(workload=load, max_virtual_s=120.0, seed=s)) for s in (0, 0, 1))
    pd.testing.assert_frame_equal(one.requests, two.requests)
    assert not one.requests.equals(moved.requests)
    q = one.requests
    assert set(q["error"]) == {"", CUT} and 1 <= latency.n_cut(q) <= 3
    assert latency.n_failed(q) == 0
    assert one.meta["n_turns"] == len(q) > 20 and 120 <= one.meta["virtual_s"] < 125
    for _, own in q.groupby("session_id"):
        assert own["turn"].tolist() == list(range(len(own)))
        assert (own["arrival_s"].to_numpy()[1:] >= own["finish_s"].to_numpy()[:-1].astype(float)).all()


def test_systems_with_other_timing_lead_agents_along_other_paths() -> None:
    few = {"tasks": 4, "agents": 4, "first_tok": 2_000, "reply_tok": 30, "tool_s": 1, "history_tok": 8_000}
    load = {"kind": "agents", "overrides": few}
    plain, slow = (
        run_spec(spec(workload=load, max_virtual_s=60.0, step_time=factor)) for factor in ({}, {"step_ms": 1.3})
    )
    paths = [r.requests.groupby("session_id")["prompt_tok"].apply(list).to_dict() for r in (plain, slow)]
    assert paths[0].keys() == paths[1].keys()
    assert all(a[0] == b[0] for a, b in zip(paths[0].values(), paths[1].values(), strict=True))  # the tasks are equal
    assert paths[0] != paths[1]


def test_the_largest_request_that_fits_finishes() -> None:
    fits_tok = (120 - 1 - 6) * 544
    trace = sessions(1, 1, fits_tok - 20)
    assert run(trace).requests.finish_s.notna().all()
    with pytest.raises(CapacityError):
        run(sessions(1, 1, fits_tok - 19))


def test_the_time_limit_marks_what_is_unfinished() -> None:
    r = run(sessions(4, 6, 2_000), max_virtual_s=2.0)
    late = r.requests[r.requests.finish_s.isna()]
    assert len(late) > 0
    assert late.error.str.contains("still running").all()


def test_a_stuck_scheduler_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool whose blocks are all taken away behind the scheduler's back: nothing can ever be scheduled."""
    from vamp.sim import driver

    monkeypatch.setattr(driver, "MAX_EMPTY_STEPS", 50)
    stolen: list[Any] = []
    admit = driver.Driver._admit

    def steal(self: Any) -> None:
        admit(self)
        if not stolen:
            stolen.extend(self.pool.get_new_blocks(self.pool.get_num_free_blocks()))

    monkeypatch.setattr(driver.Driver, "_admit", steal)
    with pytest.raises(RunError, match="no step scheduled anything 50 times"):
        run(sessions(1, 1, 1_000))


def test_decisions_carry_virtual_time_and_the_mean_boundary_is_a_ratio() -> None:
    r = run(sessions(8, 6, 2_500), ratio_pct=15)
    t = np.array([d["t_s"] for d in r.decisions])
    assert len(t) > 5
    assert (np.diff(t) >= 0).all()
    assert 0 < t[-1] <= r.meta["virtual_s"]
    assert 0 < r.meta["boundary_ratio_pct_mean"] <= 15
    assert sum(r.meta["decisions"].values()) == len(r.decisions)
    assert r.meta["invocations"] == len(r.decisions) + r.meta["deferred"]
