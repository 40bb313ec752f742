from __future__ import annotations

from pathlib import Path

from vamp.workloads.loaders import load_trace
from vamp.workloads.trace import Trace

from .helpers import Row, jsonl, write


def chat(number: int, parent: int, time_s: float, blocks: list[int]) -> Row:
    return {
        "chat_id": number,
        "parent_chat_id": parent,
        "timestamp": time_s,
        "input_length": 16 * len(blocks) - 3,
        "output_length": 4,
        "type": "text",
        "turn": 1,
        "hash_ids": blocks,
    }


def load(folder: Path, *rows: Row) -> Trace:
    return load_trace(write(folder, "b.jsonl", jsonl(*rows)))


def test_sessions_follow_the_parents(tmp_path: Path) -> None:
    trace = load(
        tmp_path,
        chat(10, -1, 60.0, [1, 2]),
        chat(11, -1, 61.0, [1, 3]),
        chat(12, 10, 64.5, [1, 4, 5]),
        chat(13, 12, 70.0, [1, 4, 6, 7]),
    )
    assert [[t.prompt_tok for t in s.turns] for s in trace.sessions] == [[29, 45, 61], [29]]
    assert [s.start_s for s in trace.sessions] == [0.0, 1.0]
    assert [t.think_s for t in trace.sessions[0].turns] == [0.0, 4.5, 5.5]
    tokens = trace.sessions[0].tokens
    assert tokens.prompt(1)[:16].tolist() == tokens.prompt(0)[:16].tolist()
    assert tokens.prompt(2)[:32].tolist() == tokens.prompt(1)[:32].tolist()
    assert tokens.prompt(1)[16:29].tolist() != tokens.prompt(0)[16:].tolist()


def test_a_second_answer_starts_a_session_of_its_own(tmp_path: Path) -> None:
    trace = load(tmp_path, chat(1, -1, 0, [1]), chat(2, 1, 1, [1, 2]), chat(3, 1, 2, [1, 3]))
    assert [len(s.turns) for s in trace.sessions] == [2, 1]
    assert trace.notes["branches"] == 1
    assert trace.notes["parents_missing"] == 0


def test_a_request_without_its_parent_starts_a_session(tmp_path: Path) -> None:
    trace = load(tmp_path, chat(1, 99, 0, [1]), chat(2, 1, 1, [1, 2]))
    assert [len(s.turns) for s in trace.sessions] == [2]
    assert trace.notes["parents_missing"] == 1


def test_a_missing_parent_field_is_a_root(tmp_path: Path) -> None:
    row = chat(1, -1, 0, [1])
    del row["parent_chat_id"]
    assert load(tmp_path, row).notes["parents_missing"] == 0


def test_unordered_requests_are_sorted_before_they_are_linked(tmp_path: Path) -> None:
    trace = load(tmp_path, chat(2, 1, 5, [1, 2]), chat(1, -1, 3, [1]))
    assert trace.notes["timestamps_sorted"] == 1
    assert [len(s.turns) for s in trace.sessions] == [2]
    assert trace.sessions[0].turns[1].think_s == 2.0
