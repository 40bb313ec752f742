from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vamp.workloads.loaders import load_trace
from vamp.workloads.loaders.lmcache import RECORDED_S_PER_TOK, think_s
from vamp.workloads.tokens import text_tokens
from vamp.workloads.trace import Session

from .helpers import Row, jsonl, write


def row(time_s: float, prompt: str, reply: str = "x" * 400, session: str = "s") -> Row:
    return {"timestamp": round(time_s * 1e6), "input": prompt, "output": reply, "session_id": session}


def load(folder: Path, *rows: Row) -> list[Session]:
    return list(load_trace(write(folder, "s.jsonl", jsonl(*rows))).sessions)


def test_a_file_is_a_session_of_growing_prompts(tmp_path: Path) -> None:
    (session,) = load(tmp_path, row(5, "abcdef"), row(9, "abcdefghij"))
    assert session.start_s == 0.0
    assert session.session_id == "s.jsonl"
    assert [t.prompt_tok for t in session.turns] == [2, 3]
    assert session.tokens.prompt(0).tolist() == text_tokens(b"abcdef").tolist()
    assert session.tokens.prompt(1)[0] == session.tokens.prompt(0)[0]  # "abcd"
    assert session.tokens.prompt(1)[1] != session.tokens.prompt(0)[1]  # "ef" and "efgh"
    assert session.tokens.output(1).tolist() == text_tokens(b"x" * 400).tolist()


def test_think_time_is_the_gap_without_the_least_service_time(tmp_path: Path) -> None:
    (session,) = load(tmp_path, row(5, "a"), row(9, "ab"), row(9.5, "abc"), row(9.6, "abcd"))
    assert [t.think_s for t in session.turns] == pytest.approx([0, 4 - 100 * 0.006, 0, 0])
    assert think_s(4.0, 0) == 4.0
    assert RECORDED_S_PER_TOK == 0.006


def test_lines_are_sorted_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path, "s.jsonl", jsonl(row(9, "abc"), row(5, "a"), row(7, "ab"), row(11, "abcd")))
    trace = load_trace(file)
    assert trace.notes["timestamps_sorted"] == 2
    tokens = trace.sessions[0].tokens
    assert [tokens.prompt(k).tolist() for k in range(4)] == [
        text_tokens(text).tolist() for text in (b"a", b"ab", b"abc", b"abcd")
    ]
    in_order = load_trace(write(tmp_path, "t.jsonl", jsonl(row(5, "a"), row(5, "b"), row(7, "c"))))
    assert in_order.notes["timestamps_sorted"] == 0


def test_an_unrecorded_text_is_one_token_and_counted(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, "s.jsonl", jsonl(row(5, "", "x"), row(6, "a", ""), row(7, "ab", "y"))))
    assert [(t.prompt_tok, t.output_tok) for t in trace.sessions[0].turns] == [(1, 1), (1, 1), (1, 1)]
    assert trace.notes["empty_inputs"] == 1
    assert trace.notes["empty_outputs"] == 1


def test_several_sessions_in_one_file_are_kept_apart(tmp_path: Path) -> None:
    sessions = load(tmp_path, row(5, "a", session="p"), row(6, "b", session="q"), row(9, "ab", session="p"))
    assert [(s.session_id, len(s.turns)) for s in sessions] == [("s.jsonl#p", 2), ("s.jsonl#q", 1)]
    assert sessions[1].start_s == 0.0


def test_a_long_session_costs_its_longest_prompt(tmp_path: Path) -> None:
    text = "word " * 4000
    (session,) = load(tmp_path, *(row(k, text[: 200 * k]) for k in range(1, 101)))
    arrays = {id(b): b for k in range(100) if (b := session.tokens.prompt(k).base) is not None}
    assert len(arrays) == 1
    assert next(iter(arrays.values())).nbytes == len(text)  # 4 bytes of text, 4 bytes of id
    assert session.tokens.prompt(99).dtype == np.int32


def test_other_scripts_are_counted_in_bytes(tmp_path: Path) -> None:
    (session,) = load(tmp_path, row(1, "日本語"))  # 9 bytes
    assert session.turns[0].prompt_tok == 3
