import json
import os
from pathlib import Path

import pytest

from vamp.bench import policy, process, sim
from vamp.bench.policy import DecisionLatency
from vamp.bench.sim import SimSpeed
from vamp.errors import RunError


def test_measurement_runs_in_another_process():
    assert process.fresh(os.getenv, "OMP_NUM_THREADS") == "1"
    assert process.fresh(os.path.abspath, ".") == str(Path.cwd())


def test_lost_process_is_a_run_error():
    with pytest.raises(RunError, match="process died"):
        process.fresh(os._exit, 3)


def test_figures_stand_beside_their_limits(vamp, monkeypatch):
    monkeypatch.setattr(policy, "measure", lambda: DecisionLatency(1000, 12.0, 51.0, 30.0, 90.0))
    monkeypatch.setattr(
        sim, "measure", lambda: [SimSpeed(0.0, 3000.0, 10.0, 40_000, 0.9), SimSpeed(15, 3e3, 31, 4, 0.9)]
    )
    status, out, _ = vamp("bench", "policy")
    assert status == 0
    assert "p99 <= 50 us" in out
    assert "over" in out
    status, out, _ = vamp("bench", "sim")
    assert status == 0
    assert "pass" in out
    assert "over" in out


def test_json(vamp, monkeypatch):
    monkeypatch.setattr(policy, "measure", lambda: DecisionLatency(1000, 12.0, 49.0, 30.0, 90.0))
    monkeypatch.setattr(sim, "measure", lambda: [SimSpeed(0.0, 3000.0, 10.0, 40_000, 1.6)])
    assert json.loads(vamp("bench", "policy", "--json")[1]) == {
        "n": 1000,
        "p50_us": 12.0,
        "p99_us": 49.0,
        "in_scheduler_p50_us": 30.0,
        "in_scheduler_p99_us": 90.0,
        "limit_p99_us": 50.0,
        "pass": True,
    }
    found = json.loads(vamp("bench", "sim", "--json")[1])
    assert (found["limit_wall_s"], found["limit_rss_gib"]) == (30.0, 1.5)
    assert found["runs"][0]["virtual_per_real"] == 300.0
    assert found["runs"][0]["steps_per_s"] == 4000.0
    assert found["runs"][0]["pass"] is False  # 1.6 GiB


def test_run_without_a_decision_is_no_measurement(vamp, stub):
    status, out, err = vamp("bench", "policy")
    assert (status, out) == (1, "")
    assert err == "vamp: no decision to time: the run never fell short of blocks\n"
