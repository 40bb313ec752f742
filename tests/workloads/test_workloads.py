"""`vamp.workloads`: from a spec to a trace."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from vamp.errors import ConfigError, TraceError
from vamp.experiments.spec import WorkloadSpec
from vamp.workloads import build_trace, sha256_of
from vamp.workloads.assumptions import StandinAssumptions
from vamp.workloads.trace import Trace


def build(seed: int = 0, **spec: Any) -> Trace:
    return build_trace(WorkloadSpec(**spec), seed=seed, growth_tok=100, output_tok=30)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    line = {"timestamp": 0, "input_length": 600, "output_length": 5}
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(json.dumps(line | {"hash_ids": [i, i + 100]}) + "\n" for i in range(8)))
    return file


def test_inhouse_takes_the_platforms_growth_unless_the_spec_says_otherwise() -> None:
    assert build(kind="inhouse", concurrency=2).sessions[0].turns[0].prompt_tok == 100
    assert build(kind="inhouse", concurrency=2, growth_tok=70).sessions[0].turns[0].prompt_tok == 70
    assert len(build(kind="inhouse", concurrency=5).sessions) == 5


def test_replay_takes_overrides_scale_and_seed() -> None:
    trace = build(kind="replay", scale=0.1, overrides={"output_tok": 400.0}, seed=3)
    assert trace.stand_in
    assert len(trace.sessions) == 5
    plain = build(kind="replay", scale=0.1, seed=3)
    replies = [sum(t.output_tok for s in t.sessions for t in s.turns) / t.n_turns for t in (trace, plain)]
    assert replies[0] / replies[1] == pytest.approx(400 / StandinAssumptions().output_tok, rel=0.05)
    with pytest.raises(ConfigError, match="valid names"):
        build(kind="replay", overrides={"bogus": 1.0})


@pytest.mark.parametrize("spec", [{"kind": "inhouse", "concurrency": 1}, {"kind": "trace", "trace_path": "x"}])
def test_other_workloads_take_no_overrides(spec: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="takes no overrides, got think_s"):
        build(**spec, overrides={"think_s": 1.0})


def test_a_recording_is_limited_thinned_and_repeated(recording: Path) -> None:
    path = str(recording)
    assert build(kind="trace", trace_path=path).n_turns == 8
    assert build(kind="trace", trace_path=path, limit_turns=3).n_turns == 3
    assert build(kind="trace", trace_path=path, scale=0.5).n_turns == 4
    trace = build(kind="trace", trace_path=path, copies=3)
    assert trace.n_turns == 24
    assert len({tuple(s.tokens.prompt(0)[:4].tolist()) for s in trace.sessions}) == 24
    assert not trace.stand_in


@pytest.mark.parametrize("n", [3, 8, 11, 16, 21])
def test_a_recording_gives_as_many_sessions_as_asked_for(recording: Path, n: int) -> None:
    trace = build(kind="trace", trace_path=str(recording), sessions=n)
    assert len(trace.sessions) == n == len({s.session_id for s in trace.sessions})
    assert len({tuple(s.tokens.prompt(0)[:4].tolist()) for s in trace.sessions}) == n  # copies share no prefix
    whole = build(kind="trace", trace_path=str(recording))
    firsts = {s.session_id for s in whole.sessions}
    assert sum(s.session_id in firsts for s in trace.sessions) == min(n, 8)


def test_a_missing_recording_is_named() -> None:
    with pytest.raises(TraceError, match=r"nowhere\.jsonl: no such file"):
        build(kind="trace", trace_path="nowhere.jsonl")


def test_the_hash_follows_content_not_name_or_place(tmp_path: Path, recording: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(recording.read_bytes())
    assert sha256_of(copy) == sha256_of(recording)
    copy.write_bytes(recording.read_bytes() + b"\n")
    assert sha256_of(copy) != sha256_of(recording)


def test_the_hash_of_a_folder_follows_every_file(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        (folder / "sub").mkdir(parents=True)
        (folder / "a").write_text("1")
        (folder / "sub" / "b").write_text("2")
    assert sha256_of(folders[0]) == sha256_of(folders[1])
    (folders[1] / "sub" / "b").write_text("3")
    assert sha256_of(folders[0]) != sha256_of(folders[1])
    (folders[1] / "sub" / "b").rename(folders[1] / "sub" / "c")
    (folders[1] / "sub" / "c").write_text("2")
    assert sha256_of(folders[0]) != sha256_of(folders[1])


def test_nothing_to_hash_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        sha256_of(tmp_path)
    with pytest.raises(TraceError, match="no such file"):
        sha256_of(tmp_path / "missing")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_named(recording: Path) -> None:
    recording.chmod(0)
    with pytest.raises(TraceError, match=r"requests\.jsonl: cannot be read"):
        sha256_of(recording)
