import json
import os
import signal
import subprocess
import sys

import pytest

from vamp.errors import CapacityError, ConfigError, RunError
from vamp.experiments import ensure as ensure_module
from vamp.experiments.ensure import ensure
from vamp.experiments.progress import PROGRESS_FILE
from vamp.measure.summary import summarise

from .conftest import DEADLINE_S, alive, spec, start_python, wait_until
from .stub_engine import BREAKS, DIES, HANGS, REFUSES, SLOW, SLOWER


def silent(_line: str) -> None: ...


def caller(*seeds, jobs=1):
    """Another process that ensures these seeds, as a second notebook would."""
    code = f"""
from tests.experiments.conftest import spec
from vamp.experiments.ensure import ensure
if __name__ == "__main__":
    print([r.meta["seed"] for r in ensure([spec(s) for s in {seeds}], jobs={jobs}, report=lambda _: None)])
"""
    return start_python(code)


def temp_folders(runs):
    return list(runs.glob(".tmp-*"))


def test_results_keep_the_order_of_the_specs_and_equal_specs_run_once(stub):
    results = ensure([spec(3), spec(1), spec(3), spec(2)], jobs=2, report=silent)
    assert [r.meta["seed"] for r in results] == [3, 1, 3, 2]
    assert sorted(stub.seeds) == [1, 2, 3]
    assert stub.threads == {"1"}


def test_second_time_is_free(stub):
    first = ensure([spec(0)], report=silent)[0]
    second = ensure([spec(0)], report=silent)[0]
    assert stub.seeds == [0]
    assert summarise(first, spec(0)).as_json() == summarise(second, spec(0)).as_json()
    # Negative control: another spec is another run.
    ensure([spec(0, ratio_pct=15)], report=silent)
    assert stub.seeds == [0, 0]


def test_damaged_run_runs_again_with_a_warning(stub, runs):
    ensure([spec(0)], report=silent)
    next(runs.glob("*/requests.parquet")).write_bytes(b"PAR1")
    with pytest.warns(RuntimeWarning, match="will run again"):
        assert len(ensure([spec(0)], report=silent)[0].requests) == 2
    assert stub.seeds == [0, 0]


def test_two_callers_at_once_make_one_run(stub):
    both = [caller(SLOW), caller(SLOW)]
    outputs = [p.communicate(timeout=DEADLINE_S) for p in both]
    assert [out for out, _ in outputs] == [f"[{SLOW}]\n"] * 2, outputs
    assert stub.seeds == [SLOW]


def test_nothing_to_do(runs):
    assert ensure([], report=silent) == []


def test_one_line_per_finished_run(stub, capsys):
    ensure([spec(0), spec(1)], jobs=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "vLLM h100_pcie_tp2 inhouse c=2 seed 0: 2 turns, 2 s simulated in 0.1 s (1/2)",
        "vLLM h100_pcie_tp2 inhouse c=2 seed 1: 2 turns, 2 s simulated in 0.1 s (2/2)",
    ]
    ensure([spec(0), spec(1)])
    assert capsys.readouterr().out == ""


def test_dead_worker_is_named_with_its_spec_and_its_signal(stub, runs):
    with pytest.raises(RunError, match=rf"seed {DIES}: the worker process died \(SIGKILL\)") as caught:
        ensure([spec(HANGS), spec(DIES)], jobs=2, report=silent)
    assert f"seed {HANGS}" not in str(caught.value)
    assert not any(map(alive, stub.pids))
    assert temp_folders(runs) == []
    # The store is as usable as before.
    assert len(ensure([spec(0)], report=silent)) == 1


def test_refusal_of_the_engine_arrives_as_it_is_and_ends_the_others(stub):
    with pytest.raises(CapacityError, match="needs 10 tokens"):
        ensure([spec(HANGS), spec(REFUSES)], jobs=2, report=silent)
    assert not any(map(alive, stub.pids))


def test_defect_of_the_engine_names_the_spec(stub):
    with pytest.raises(RunError, match=rf"VAMP-15 .* seed {BREAKS}: ZeroDivisionError: an engine defect"):
        ensure([spec(BREAKS, ratio_pct=15)], report=silent)


def test_runs_finished_before_a_refusal_are_kept(stub):
    with pytest.raises(CapacityError):
        ensure([spec(0), spec(REFUSES)], jobs=1, report=silent)
    ensure([spec(0)], report=silent)
    assert stub.seeds.count(0) == 1


def test_ctrl_c_ends_the_workers_and_leaves_no_temp_folder(stub, runs):
    process = caller(HANGS, HANGS + 1000, jobs=2)
    wait_until(lambda: HANGS in stub.seeds)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers are in the same group
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode != 0
    assert errors.strip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1  # the workers say nothing
    wait_until(lambda: not any(map(alive, stub.pids)))
    assert temp_folders(runs) == []


def test_killed_caller_leaves_no_worker(stub):
    process = caller(HANGS)
    wait_until(lambda: HANGS in stub.seeds)
    assert alive(stub.pids[0])
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    wait_until(lambda: not any(map(alive, stub.pids)))


def test_unknown_backend_is_refused():
    with pytest.raises(ConfigError, match="backend 'tpu' is not in this version; use one of: sim, cpu"):
        ensure_module.check_backend("tpu")
    ensure_module.check_backend("recorded")


def test_what_was_never_recorded_is_refused(runs):
    with pytest.raises(ConfigError, match="record"):
        ensure([spec(0, backend="recorded")], report=silent)


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_senseless_number_of_jobs_is_refused(stub, monkeypatch, jobs):
    monkeypatch.setenv("VAMP_JOBS", jobs)
    with pytest.raises(ConfigError, match="at least 1"):
        ensure([spec(0)], report=silent)
    assert stub.seeds == []


@pytest.mark.parametrize(
    ("jobs", "cores", "memory_gib", "expected"),
    [(None, 8, 64, 8), (None, 8, 6, 4), (None, 8, 0, 1), (5, 2, 1, 5)],
)
def test_jobs_fit_cores_and_memory_unless_told(monkeypatch, jobs, cores, memory_gib, expected):
    monkeypatch.delenv("VAMP_JOBS", raising=False)
    monkeypatch.setattr(ensure_module, "usable_cores", lambda: cores)
    monkeypatch.setattr(ensure_module, "available_memory_bytes", lambda: memory_gib * 2**30)
    assert ensure_module._n_slots(jobs) == expected


def test_callers_side_by_side_share_the_slots(stub):
    both = [caller(SLOW), caller(SLOWER)]
    for process in both:
        process.communicate(timeout=DEADLINE_S)
    first, second = sorted(stub.starts_s)
    assert second - first >= 1.0  # each takes a second, and jobs=1 allows one at a time


def test_progress_goes_to_the_callback_and_the_file(stub, tmp_path, monkeypatch):
    monkeypatch.setenv(PROGRESS_FILE, str(tmp_path / "progress.json"))
    seen = []
    ensure([spec(0)], report=silent)
    ensure([spec(0), spec(1), spec(SLOW)], jobs=1, report=silent, progress=seen.append)
    assert (seen[0].done, seen[0].total, seen[0].fraction) == (1, 3, pytest.approx(1 / 3))
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert [p.fraction for p in seen] == sorted(p.fraction for p in seen)
    last = json.loads((tmp_path / "progress.json").read_text())
    assert last == {"done": 3, "total": 3, "turns_done": 4, "turns_total": 4, "fraction": 1.0}
    assert [p.name for p in tmp_path.glob("progress*")] == ["progress.json"]


def test_caller_loads_no_engine():
    code = "import sys, vamp.experiments.ensure; print([m for m in ('vllm', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_simulator_end_to_end(runs):
    """The real engine, a tiny in-house load: plain vLLM and VAMP-15, then both from the store."""
    tiny = {"kind": "inhouse", "concurrency": 2, "scale": 0.25}
    specs = [
        spec(0).model_copy(update={"workload": type(spec(0).workload)(**tiny), "ratio_pct": r}) for r in (0.0, 15.0)
    ]
    results = ensure(specs, jobs=1, report=silent)
    for result, run in zip(results, specs, strict=True):
        row = summarise(result, run)
        assert row.failed == 0
        assert row.requests == result.meta["n_turns"] > 0
        assert row.ttft_p99_s > 0
        assert row.tpot_ms > 0
        assert result.timeline["output_tok"].iloc[-1] == result.requests["output_tok"].sum()
    before = sorted(p.stat().st_mtime_ns for p in runs.glob("*/run.json"))
    again = ensure(specs, report=silent)
    assert sorted(p.stat().st_mtime_ns for p in runs.glob("*/run.json")) == before
    assert [summarise(r, s).as_json() for r, s in zip(again, specs, strict=True)] == [
        summarise(r, s).as_json() for r, s in zip(results, specs, strict=True)
    ]
