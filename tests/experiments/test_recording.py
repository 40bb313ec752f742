"""Stored runs become a recording, and are read back as they were."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from tests.measure.conftest import lost, request, result
from vamp.cli import main
from vamp.errors import ConfigError, RunError
from vamp.experiments import recording, table4
from vamp.experiments.ensure import ensure
from vamp.experiments.recording import MAX_BYTES, stored_runs, write
from vamp.experiments.spec import RunSpec, make_spec
from vamp.experiments.store import RunStore, code_digest, pinned, run_key
from vamp.measure.records import RunResult, TimelinePoint

GPUS = [{"name": "NVIDIA H200", "memory_mib": 143_000, "driver_api": 13_000}]


def spec(ratio_pct: float, backend: str = "cuda", seed: int = 0) -> RunSpec:
    return make_spec(
        backend=backend, platform="h200_tp2_rank", ratio_pct=ratio_pct, seed=seed, workload={"kind": "replay"}
    )


def ran(first_s: float = 1.0) -> RunResult:
    """With what a live run has: requests without an end, NaN in the timeline, decisions with lists and nulls."""
    point = [0.5 * i for i in range(len(TimelinePoint._fields))]
    run = result(
        [request("a", 0, 0.0, first_s, 1.0), lost("b", 0, 0.25)],
        [TimelinePoint(*point), TimelinePoint(*point[:6], math.nan, *point[7:])],  # type: ignore[arg-type]
        model="rank, random weights",
        gpus=GPUS,
        boundary_ratio_pct_mean=math.nan,
    )
    run.preemption_s = [0.125]
    run.decisions = [{"choice": "offload", "C_e_us": None, "ages_steps": [1, 2]}]
    return run


@pytest.fixture
def stored(runs: Path) -> RunStore:
    store = RunStore()
    for ratio, first_s in ((0.0, 2.0), (15.0, 1.0)):
        one = pinned(spec(ratio))
        store.write(one, run_key(one, code_digest("cuda")), code_digest("cuda"), ran(first_s))
    return store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """data/ with an empty recorded/; the rest as it is."""
    data = tmp_path / "data"
    data.mkdir()
    for path in recording.data_dir().iterdir():
        if path.name != "recorded":
            (data / path.name).symlink_to(path)
    monkeypatch.setattr(recording, "data_dir", lambda: data)
    (data / "recorded").mkdir()
    return data / "recorded"


def same(a: RunResult, b: RunResult) -> bool:
    for left, right in ((a.requests, b.requests), (a.timeline, b.timeline)):
        try:
            pd.testing.assert_frame_equal(left, right, check_exact=True)
        except AssertionError:
            return False
    metas = [{k: v for k, v in run.meta.items() if v == v} for run in (a, b)]
    return (a.preemption_s, a.decisions, metas[0]) == (b.preemption_s, b.decisions, metas[1])


def test_a_recording_gives_back_what_the_store_has(stored: RunStore, folder: Path) -> None:
    size = write(folder / "x.json", stored_runs(stored), what="a test", command="vamp run")
    assert size == (folder / "x.json").stat().st_size < MAX_BYTES
    plain, vamp = ensure([spec(0.0, "recorded"), spec(15.0, "recorded")])
    kept = {one.spec["ratio_pct"]: one.result for one in stored_runs(stored)}
    assert same(plain, kept[0.0]) and same(vamp, kept[15.0])
    assert not same(plain, kept[15.0])  # the negative control
    found = json.loads((folder / "x.json").read_text())
    assert found["environment"]["gpu"] == "NVIDIA H200" and found["environment"]["gpu_count"] == 1
    assert recording.origin_of("h200_tp2_rank") == f"recorded on 1x NVIDIA H200, {found['recorded']}"
    title = table4.Params.check(backend="recorded").title("Table IV")
    assert "recorded on 1x NVIDIA H200" in title and "random weights" in title


def test_what_was_not_recorded_lists_what_was(stored: RunStore, folder: Path) -> None:
    write(folder / "x.json", stored_runs(stored), what="a test", command="vamp run")
    with pytest.raises(ConfigError, match=r"VAMP-20 .* not recorded in this form; .* is: VAMP-15 .*; vLLM .* seed 0$"):
        ensure([spec(20.0, "recorded")])
    with pytest.raises(ConfigError, match="seed 3 was not recorded"):
        ensure([spec(0.0, "recorded", seed=3)])
    only = recording.recorded_ones([spec(r, "recorded") for r in (0.0, 15.0, 20.0)])
    assert [one.ratio_pct for one in only] == [0.0, 15.0]


@pytest.mark.parametrize("damage", [lambda text: text[:-20], lambda text: text.replace("0.125", "0.25")])
def test_a_damaged_file_is_refused_in_one_line(stored: RunStore, folder: Path, damage) -> None:
    write(folder / "x.json", stored_runs(stored), what="a test", command="vamp run")
    (folder / "x.json").write_text(damage((folder / "x.json").read_text()))
    with pytest.raises(RunError, match=r"^data/recorded/x\.json is damaged \(.*\); restore it, or record it again$"):
        ensure([spec(0.0, "recorded")])


def test_other_files_of_the_folder_are_no_recordings(folder: Path) -> None:
    (folder / "other.json").write_text('{"what": "something else"}')
    assert recording.recordings() == []
    with pytest.raises(ConfigError, match="there is: nothing"):
        ensure([spec(0.0, "recorded")])


def test_runs_are_chosen_by_key_backend_or_time(stored: RunStore) -> None:
    every = stored_runs(stored)
    assert len(every) == 2 and stored_runs(stored, backend="cpu") == [] == stored_runs(stored, since="2999")
    assert [one.key for one in stored_runs(stored, [every[0].key[:12]])] == [every[0].key]
    with pytest.raises(ConfigError, match="'zz' fits none or several"):
        stored_runs(stored, ["zz"])
    with pytest.raises(ConfigError, match="no run to record"):
        write(stored.root / "x.json", [], what="", command="")


def test_the_command_writes_a_recording(capsys: pytest.CaptureFixture[str], stored: RunStore, tmp_path: Path) -> None:
    argv = ["record", "--what", "a test", "--kind"]
    assert main([*argv, "replay", "--out", str(tmp_path / "y.json")]) == 0
    assert "2 runs" in capsys.readouterr().out
    assert len(recording.recordings(tmp_path)) == 1
    assert main([*argv, "inhouse", "--out", str(tmp_path / "z.json")]) == 2
    assert "no run to record" in capsys.readouterr().err and not (tmp_path / "z.json").exists()
