import json
import os
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import ConfigError, RunError
from vamp.experiments import store as store_module
from vamp.experiments.spec import make_spec
from vamp.experiments.store import RunStore, canonical, code_digest, pinned, run_key
from vamp.measure.records import RequestRecord, RunResult, TimelinePoint

from .conftest import spec


def result() -> RunResult:
    requests = [
        RequestRecord("a", 0, 10, 5, 0.0, 0.125, 0.25, 1 / 3, 2.0, cached_tok=4, n_preemptions=1),
        RequestRecord("b", 0, 10, 5, 0.5, error="HTTP 500: the body of the reply"),
    ]
    return RunResult(
        RunResult.requests_frame(requests),
        RunResult.timeline_frame(
            [TimelinePoint(0.1 * i, i, 1, 0, 9, 8, 7, 0, 10, 5, 0, i, 0.1, 0.0) for i in range(3)]
        ),
        preemption_s=[0.1, 1 / 7],
        decisions=[
            {"step": 3, "choice": "evict", "C_c_us": 44.9, "C_p_us": None},
            {"step": 4, "choice": None},
        ],
        meta={"virtual_s": np.float64(2.5), "steps": np.int64(7), "notes": {"lines skipped": 2}},
    )


def write(runs, run=None):
    store, code = RunStore(), code_digest()
    key = run_key(spec(), code)
    with store.lock(key):
        return store, key, store.write(spec(), key, code, run or result())


def leftovers(runs):
    return [p.name for p in runs.iterdir() if p.name.startswith(".tmp")]


def test_run_comes_back_as_it_was(runs):
    store, key, folder = write(runs)
    back = store.read(key)
    pd.testing.assert_frame_equal(back.requests, result().requests)
    pd.testing.assert_frame_equal(back.timeline, result().timeline)
    assert back.preemption_s == result().preemption_s
    assert back.decisions == result().decisions
    assert back.meta == {"virtual_s": 2.5, "steps": 7, "notes": {"lines skipped": 2}}
    assert back.requests["error"].tolist() == ["", "HTTP 500: the body of the reply"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "decisions.jsonl",
        "preemptions.json",
        "requests.parquet",
        "run.json",
        "timeline.parquet",
    ]
    assert leftovers(runs) == []
    # Negative control: another run is told apart.
    other = result()
    other.requests.loc[0, "finish_s"] = 2.0001
    with pytest.raises(AssertionError):
        pd.testing.assert_frame_equal(back.requests, other.requests)


def test_unknown_run_is_absent_without_a_warning(runs, recwarn):
    assert RunStore().read("0" * 32) is None
    assert not recwarn


def truncate(folder):
    path = folder / "requests.parquet"
    path.write_bytes(path.read_bytes()[:100])


def flip(folder):
    path = folder / "timeline.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def drop(folder):
    (folder / "decisions.jsonl").unlink()


def empty_manifest(folder):
    (folder / "run.json").write_text("")


@pytest.mark.parametrize("damage", [truncate, flip, drop, empty_manifest])
def test_damaged_run_reads_as_absent_with_a_warning_and_can_be_replaced(runs, damage):
    store, key, folder = write(runs)
    damage(folder)
    with pytest.warns(RuntimeWarning, match="damaged and will run again"):
        assert store.read(key) is None
    write(runs)
    assert len(store.read(key).requests) == 2
    assert leftovers(runs) == []


def test_half_written_run_of_a_dead_process_is_cleared_by_the_next_holder_of_its_lock(runs):
    store, key = RunStore(), "a" * 32
    stale, foreign = runs / f".tmp-{key}-4194000", runs / f".tmp-{'b' * 32}-4194000"
    for folder in (stale, foreign):
        folder.mkdir(parents=True)
        (folder / "requests.parquet").write_bytes(b"PAR1")
    with store.lock(key):
        assert not stale.exists()
    assert foreign.exists()  # another run's writer may be alive
    assert store.read(key) is None


def test_slots_are_shared_by_all_and_given_back(runs):
    store, got = RunStore(), threading.Event()

    def second(n_slots):
        with store.slot(n_slots):
            got.set()

    with store.lock("a" * 32), store.slot(1):
        waiting = threading.Thread(target=second, args=(1,))
        waiting.start()
        assert not got.wait(0.5)
        other = threading.Thread(target=second, args=(2,))
        other.start()  # negative control: with a second slot there is room
        assert got.wait(5)
        got.clear()
    assert got.wait(5)
    waiting.join()
    other.join()


def test_sweep_takes_only_what_that_process_wrote(runs):
    for pid in (12, 123):
        (runs / f".tmp-{'a' * 32}-{pid}").mkdir(parents=True)
    RunStore().sweep(12)
    assert leftovers(runs) == [f".tmp-{'a' * 32}-123"]


FULL_DISK = """
import resource, signal, sys
from tests.experiments.test_store import result, write
from vamp.errors import RunError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
try:
    write(None)
except RunError as err:
    print(err)
"""


@pytest.mark.parametrize("limit", [200, 3000])
def test_disk_that_takes_no_more_leaves_nothing_and_says_so(runs, limit):
    """The system refuses bytes beyond a limit, first within one file, then somewhere later."""
    root = store_module.Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", FULL_DISK, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.startswith(f"cannot store runs in {runs}: ")
    assert "free some space" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert [p.name for p in runs.iterdir()] == [".locks"]


def test_full_disk_at_the_rename_keeps_nothing(runs, monkeypatch):
    def no_space(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module.Path, "replace", no_space)
    with pytest.raises(RunError, match="No space left on device; free some space"):
        write(runs)
    assert [p.name for p in runs.iterdir()] == [".locks"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_store_that_cannot_be_written(runs):
    runs.mkdir()
    runs.chmod(0o500)
    with pytest.raises(RunError, match="Permission denied"):
        write(runs)


def test_store_that_is_a_file(runs):
    runs.write_text("")
    with pytest.raises(RunError, match="cannot store runs"):
        write(runs)


@given(
    a=st.tuples(st.integers(0, 3), st.sampled_from([0.0, 15.0]), st.booleans()),
    b=st.tuples(st.integers(0, 3), st.sampled_from([0.0, 15.0]), st.booleans()),
)
def test_keys_are_equal_exactly_when_specs_are(a, b):
    keys = [run_key(spec(seed, ratio_pct=r, reserve_full_isl=isl), "code") for seed, r, isl in (a, b)]
    assert (keys[0] == keys[1]) == (a == b)


def test_code_and_data_are_part_of_the_key(tmp_path, monkeypatch):
    package, data = tmp_path / "vamp", tmp_path / "data"
    (package / "policy").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "policy" / "costs.py").write_text("ALPHA = 0.5\n")
    (data / "platforms").mkdir(parents=True)
    (data / "platforms" / "p.yaml").write_text("step_ms: 1\n")
    monkeypatch.setattr(store_module.vamp, "__file__", str(package / "__init__.py"))
    monkeypatch.setattr(store_module.paths, "data_dir", lambda: data)
    seen = [code_digest()]
    assert code_digest() == seen[0]
    (package / "policy" / "__pycache__").mkdir()
    (package / "policy" / "__pycache__" / "costs.pyc").touch()
    (package / "report.py").touch()  # changes no result
    assert code_digest() == seen[0]
    (package / "policy" / "costs.py").write_text("ALPHA = 0.6\n")
    seen.append(code_digest())
    (data / "platforms" / "p.yaml").write_text("step_ms: 2\n")
    seen.append(code_digest())
    monkeypatch.setattr(store_module, "vllm_version", lambda: "0.27.0")
    seen.append(code_digest())
    assert len(set(seen)) == 4


def test_every_listed_code_folder_exists():
    package = store_module.Path(store_module.vamp.__file__).parent
    assert all((package / name).exists() for names in store_module.CODE.values() for name in names)
    folders = [name for names in store_module.DATA.values() for name in names]
    assert all((store_module.paths.data_dir() / name).exists() for name in folders)


def trace_spec(path):
    return make_spec(workload={"kind": "trace", "trace_path": str(path)})


def test_edited_trace_is_another_run_and_a_moved_one_is_not(tmp_path):
    first, moved = tmp_path / "a" / "t.jsonl", tmp_path / "b" / "t.jsonl"
    for path in (first, moved):
        path.parent.mkdir()
        path.write_text('{"timestamp": 0, "input_length": 10, "output_length": 2, "hash_ids": [1]}\n')
    key = run_key(pinned(trace_spec(first)), "code")
    assert run_key(pinned(trace_spec(moved)), "code") == key
    first.write_text('{"timestamp": 0, "input_length": 11, "output_length": 2, "hash_ids": [1]}\n')
    assert run_key(pinned(trace_spec(first)), "code") != key


def test_missing_trace_is_one_clear_error(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.jsonl does not exist"):
        pinned(trace_spec(tmp_path / "nowhere.jsonl"))


def test_manifest_names_no_folder_of_this_machine(runs, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("{}")
    assert canonical(trace_spec(path))["workload"]["trace_path"] == "t.jsonl"
    _, _, folder = write(runs)
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["spec"] == canonical(spec())
    assert str(tmp_path) not in json.dumps(manifest)
