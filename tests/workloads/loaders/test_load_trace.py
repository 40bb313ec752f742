from __future__ import annotations

from pathlib import Path

import pytest

from vamp.errors import TraceError
from vamp.workloads.loaders import load_trace

from .helpers import LMCACHE, MOONCAKE, jsonl, samples, write


def test_a_folder_gives_every_file_of_a_known_kind(tmp_path: Path) -> None:
    for kind, content in samples().items():
        write(tmp_path, f"{kind}/one", content, packed=kind == "lmcache")
    write(tmp_path, "README.md", b"# about\n")
    write(tmp_path, "lmcache/empty.jsonl", b"")
    trace = load_trace(tmp_path)
    assert trace.notes["files"] == 5
    assert trace.notes["files_skipped"] == 2
    assert trace.n_turns == sum(load_trace(tmp_path / kind).n_turns for kind in samples())
    assert len({s.session_id for s in trace.sessions}) == len(trace.sessions)
    assert trace.label.startswith("Azure LLM requests + Qwen-Bailian requests + LMCache agent sessions")
    assert trace.label.endswith(f": {tmp_path.name}")


def test_ids_are_unique_where_names_differ_only_in_their_suffix(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz", "sub/a.jsonl"):
        write(tmp_path, name, jsonl(LMCACHE))
    assert {s.session_id for s in load_trace(tmp_path).sessions} == {"a.jsonl", "a.jsonl.gz", "sub/a.jsonl"}


def test_a_damaged_file_in_a_folder_is_refused_not_skipped(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", jsonl(MOONCAKE))
    write(tmp_path, "b.jsonl", jsonl(MOONCAKE)[:-5])
    with pytest.raises(TraceError, match=r"b\.jsonl:1: malformed"):
        load_trace(tmp_path)


def test_the_limit_counts_over_files_and_leaves_the_rest_unread(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", jsonl(LMCACHE, LMCACHE, LMCACHE))
    write(tmp_path, "b.jsonl", jsonl(LMCACHE, LMCACHE))
    write(tmp_path, "c.jsonl", jsonl(LMCACHE)[:-5])
    trace = load_trace(tmp_path, limit_turns=4)
    assert [len(s.turns) for s in trace.sessions] == [3, 1]
    assert trace.notes["files"] == 2


@pytest.mark.parametrize("name", ["empty", "text", "folder", "folder/notes.txt"])
def test_nothing_to_load_is_an_error(tmp_path: Path, name: str) -> None:
    write(tmp_path, "empty", b"")
    write(tmp_path, "text", b"once upon a time\n")
    write(tmp_path, "folder/notes.txt", b"notes\n")
    with pytest.raises(TraceError, match=rf"{name}: empty, or no recording of a known kind \(LMCache"):
        load_trace(tmp_path / name)


def test_a_missing_path_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(TraceError, match="no such file, or a folder without files"):
            load_trace(path)


def test_sessions_are_in_order_of_their_start(tmp_path: Path) -> None:
    for name, times in (("a.jsonl", (0, 5000)), ("b.jsonl", (0, 2000))):
        rows = (MOONCAKE | {"timestamp": t, "hash_ids": [t, t + 1]} for t in times)
        write(tmp_path, name, jsonl(*rows))
    assert [s.start_s for s in load_trace(tmp_path).sessions] == [0.0, 0.0, 2.0, 5.0]
