import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.conftest import interruptible, wait_until
from tests.experiments.stub_engine import DIES, HANGS, REFUSES
from tests.measure.test_summary import CONTRACT

DATA = Path(os.environ.get("VAMP_TRACES") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "conversation_trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n')
    return path


def test_json_object_has_the_contract_keys(vamp, stub):
    status, out, err = vamp("run", "replay", "--ratio", "15", "--seed", "4", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert list(found)[: len(CONTRACT) + 1] == ["spec", *CONTRACT]
    assert found["spec"]["ratio_pct"] == 15.0
    assert found["spec"]["seed"] == 4
    assert found["spec"]["reserve_full_isl"] is False
    assert found["spec"]["workload"]["kind"] == "replay"
    assert (found["requests"], found["failed"], found["simulated"]) == (1, 0, True)  # of two, one in the interval
    assert found["boundary_ratio_pct_mean"] is None  # the stub measures none
    assert "stand-in" in err
    assert "seed 4: 2 turns" in err


def test_closed_loop_runs_agents_for_the_hours_asked_for(vamp, stub):
    status, out, err = vamp("run", "closed-loop", "--hours", "2", "--ratio", "15", "--concurrency", "60", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert list(found)[: len(CONTRACT) + 1] == ["spec", *CONTRACT]
    assert (found["spec"]["max_virtual_s"], found["spec"]["ratio_pct"]) == (7200.0, 15.0)
    assert found["spec"]["workload"]["kind"] == "agents"
    assert found["spec"]["workload"]["overrides"] == {"agents": 60, "tasks": 60}
    assert (found["failed"], found["unfinished"]) == (0, 0)
    assert json.loads(vamp("run", "closed-loop", "--json")[1])["spec"]["max_virtual_s"] == 6 * 3600


def test_second_time_is_free(vamp, stub):
    first = vamp("run", "replay", "--json")[1]
    assert vamp("run", "replay", "--json")[1] == first
    assert stub.seeds == [0]


def test_table_says_simulated(vamp, stub):
    status, out, _ = vamp("run", "replay")
    assert status == 0
    assert "vLLM on h100_pcie_tp2, simulated" in out
    assert "ttft_p99_s" in out


def test_recorded_trace_reaches_the_spec_with_its_digest_only_in_the_store(vamp, stub, trace, runs):
    status, out, err = vamp("run", "replay", "--trace", trace, "--copies", "3", "--concurrency", "2", "--json")
    assert status == 0, err
    assert "stand-in" not in err
    load = json.loads(out)["spec"]["workload"]
    assert (load["kind"], load["trace_path"], load["copies"]) == ("trace", str(trace), 3)
    assert load["concurrency"] == 2
    stored = json.loads(next(runs.glob("*/run.json")).read_text())["spec"]["workload"]
    assert (stored["trace_path"], len(stored["trace_sha256"])) == (trace.name, 64)


def test_sweep_of_one_level_is_one_object_and_of_several_a_list(vamp, stub):
    one = json.loads(vamp("run", "sweep", "--concurrency", "16", "--json")[1])
    assert one["spec"]["workload"]["concurrency"] == 16
    assert one["window"] == "steady"
    several = json.loads(vamp("run", "sweep", "--concurrency", "16,20", "--concurrency", "24", "--json")[1])
    assert [run["spec"]["workload"]["concurrency"] for run in several["runs"]] == [16, 20, 24]
    assert several["runs"][0] == one
    assert len(stub.seeds) == 3  # 16 came from the store


def test_admission_of_vllm_0_26_can_be_asked_for(vamp, stub):
    asked = json.loads(vamp("run", "replay", "--reserve-full-isl", "--json")[1])
    assert asked["spec"]["reserve_full_isl"] is True


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["replay", "--platform", "h300"], "unknown platform 'h300'"),
        (["replay", "--ratio", "60"], "ratio is 60; it must be a number from 0 to 50"),
        (["replay", "--ratio", "auto"], "--ratio auto is not in this version"),
        (["replay", "--backend", "gpu"], "backend 'gpu' is not in this version"),
        (["sweep", "--backend", "recorded", "--seed", "99"], "seed 99 was not recorded in this form"),
        (["sweep", "--dry-run"], "only cpu and cuda start a server"),
        (
            ["replay", "--backend", "cpu", "--platform", "h100_pcie_tp2"],
            "is not for backend 'cpu'; it has: cpu_tiny_moe",
        ),
        (["replay", "--platform", "cpu_tiny_moe"], "is not for backend 'sim'"),
        (["replay", "--trace", "/no/such/file"], "trace /no/such/file does not exist"),
        (["replay", "--seed", "-1"], "--seed"),
        (["replay", "--concurrency", "4"], "--concurrency 4 needs --trace"),
        (["replay", "--copies", "4"], "--copies 4 needs --trace"),
        (["sweep", "--concurrency", "none"], "whole number of at least 1"),
        (["sweep", "--concurrency", "5000"], "workload.concurrency"),
        (["sweep", "--copies", "2"], "--copies 2 needs --trace"),
    ],
)
def test_senseless_request_is_one_line(refused, stub, argv, message):
    assert message in refused("run", *argv)
    assert stub.seeds == []


def test_unusable_trace_names_file_and_line(refused, runs, trace):
    trace.write_text(trace.read_text() + '{"timestamp": 1, "input_length": -5, "output_length": 2, "hash_ids": []}\n')
    line = refused("run", "replay", "--trace", trace)
    assert f"{trace}:2" in line
    assert "input_length" in line


def test_engine_refusal_and_lost_worker(vamp, stub):
    status, out, err = vamp("run", "replay", "--seed", REFUSES)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1] == "vamp: session 'x' needs 10 tokens, more than the pool's 5"
    status, out, err = vamp("run", "replay", "--seed", DIES)
    assert (status, out) == (1, "")
    assert f"seed {DIES}: the worker process died (SIGKILL)" in err.splitlines()[-1]


def test_ctrl_c_ends_with_130_and_one_line(stub):
    command = [sys.executable, "-c", "import sys; from vamp.cli import main; sys.exit(main())"]
    argv = ["run", "replay", "--seed", str(HANGS)]
    process = subprocess.Popen(
        [*command, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=interruptible,
    )
    wait_until(lambda: HANGS in stub.seeds)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "vamp: interrupted"
    assert "Traceback" not in err


@pytest.mark.slow
def test_request_that_fits_no_pool_is_one_line(refused, runs, trace):
    """The real engine refuses before it runs a step."""
    ids = list(range(1758))
    trace.write_text(f'{{"timestamp": 0, "input_length": 900000, "output_length": 2, "hash_ids": {ids}}}\n')
    assert "900002 tokens at once, more than" in refused("run", "replay", "--trace", trace)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["lmcache_agent_trace/miniswe", "swe_agent", "mooncake/conversation_trace.jsonl.gz"])
def test_public_recordings_replay(vamp, runs, path):
    if not (DATA / path).exists():
        pytest.skip(f"{path} is not here; set VAMP_TRACES to the folder that data/README.md describes")
    status, out, err = vamp("run", "replay", "--trace", DATA / path, "--limit-turns", "20", "--ratio", "15", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert 0 < found["requests"] <= 20
    assert found["failed"] == 0
    assert found["ttft_p99_s"] > 0
    assert found["stand_in"] is False


def test_turns_of_a_session_can_be_limited_without_a_trace(vamp, stub):
    found = json.loads(vamp("run", "sweep", "--concurrency", "2", "--limit-turns", "3", "--json")[1])
    assert found["spec"]["workload"]["limit_turns"] == 3


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_dry_run_says_what_would_start_and_starts_nothing(vamp, stub, backend):
    argv = ("run", "replay", "--backend", backend, "--ratio", "15", "--limit-turns", "2", "--dry-run")
    if backend == "cuda":
        argv += ("--platform", "h200_tp2_rank")
    status, out, err = vamp(*argv, "--json")
    assert status == 0, err
    plan = json.loads(out)
    assert plan["command"][2] == "vamp.engine.server" and "--additional-config" in plan["command"]
    assert plan["environment"].get("VLLM_USE_V2_MODEL_RUNNER", "0") == "0"
    assert plan["workload"]["turns"] == 2 * plan["workload"]["sessions"] > 0
    problems = {need["name"]: need["problem"] for need in plan["needs"]}
    assert problems["model"] == problems["pool"] == ""
    text = vamp(*argv)[1]
    assert "vamp.engine.server" in text and "found  model" in text
    assert stub.seeds == []
