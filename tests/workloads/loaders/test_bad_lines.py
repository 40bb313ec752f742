"""Bad input: one clear error with file, line and field, for every kind of recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vamp.errors import TraceError
from vamp.workloads.loaders import load_trace
from vamp.workloads.tokens import MAX_TOK

from .helpers import AZURE, LINE_KINDS, MOONCAKE, SWE_AGENT, jsonl, write

NOT_A_LENGTH = [0, -5, True, 1.5, "7", None, [], MAX_TOK + 1, 10**30]
NOT_A_TIME = ["12", None, True, [], float("nan"), float("inf"), 1e300]
NOT_A_TEXT = [7, None, True, [], {}]
CASES = [
    *(("mooncake", "input_length", v) for v in NOT_A_LENGTH),
    *(("mooncake", "output_length", v) for v in NOT_A_LENGTH),
    *(("mooncake", "timestamp", v) for v in NOT_A_TIME),
    *(("mooncake", "hash_ids", v) for v in [None, 3, "1,2", [1, -2], [True, 2], [1, 2.5], [1, 2**63], [1], []]),
    *(("bailian", "output_length", v) for v in NOT_A_LENGTH),
    *(("bailian", "timestamp", v) for v in NOT_A_TIME),
    *(("bailian", "chat_id", v) for v in [None, "x", 1.5, True]),
    *(("bailian", "parent_chat_id", v) for v in [None, "x", 1.5]),
    *(("bailian", "hash_ids", v) for v in [[1], [], [1, "2"]]),
    *(("lmcache", "timestamp", v) for v in NOT_A_TIME),
    *(("lmcache", "input", v) for v in NOT_A_TEXT),
    *(("lmcache", "output", v) for v in NOT_A_TEXT),
    *(("lmcache", "session_id", v) for v in [*NOT_A_TEXT, ""]),
]


@pytest.mark.parametrize(("kind", "field", "value"), CASES)
def test_a_wrong_value_is_named(tmp_path: Path, kind: str, field: str, value: Any) -> None:
    good = LINE_KINDS[kind]
    file = write(tmp_path, "bad.jsonl", jsonl(good, good | {field: value}))
    with pytest.raises(TraceError) as error:
        load_trace(file)
    assert error.value.line == 2
    assert error.value.field.split(".")[0] == field
    assert str(error.value).startswith(f"{file}:2: field '{field}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("kind", "field"), [(k, f) for k in LINE_KINDS for f in LINE_KINDS[k]])
def test_a_missing_field_is_named(tmp_path: Path, kind: str, field: str) -> None:
    good = LINE_KINDS[kind]
    file = write(tmp_path, "bad.jsonl", jsonl(good, {k: v for k, v in good.items() if k != field}))
    if field in ("type", "turn", "parent_chat_id"):  # not needed
        assert load_trace(file).n_turns == 2
        return
    with pytest.raises(TraceError, match=f"field '{field}': Field required") as error:
        load_trace(file)
    assert error.value.line == 2


@pytest.mark.parametrize("kind", sorted(LINE_KINDS))
@pytest.mark.parametrize("damage", [b'{"timestamp": 1, "inp', b"{}}", b"null", b"[]", b"\xff\xfe{}", b"[" * 10_000])
def test_a_malformed_line_is_named(tmp_path: Path, kind: str, damage: bytes) -> None:
    file = write(tmp_path, "bad.jsonl", jsonl(LINE_KINDS[kind]) + damage)
    with pytest.raises(TraceError, match=r"bad\.jsonl:2: ") as error:
        load_trace(file)
    assert len(str(error.value)) < 400


def test_the_first_line_is_checked_too(tmp_path: Path) -> None:
    file = write(tmp_path, "bad.jsonl", jsonl(MOONCAKE)[:-10])
    with pytest.raises(TraceError, match=r"bad\.jsonl:1: malformed or truncated"):
        load_trace(file)


def test_lines_after_the_limit_are_not_read(tmp_path: Path) -> None:
    file = write(tmp_path, "bad.jsonl", jsonl(MOONCAKE, MOONCAKE) + b"damage")
    assert load_trace(file, limit_turns=2).n_turns == 2
    with pytest.raises(TraceError):
        load_trace(file, limit_turns=3)


def test_too_few_blocks_say_how_many_are_needed(tmp_path: Path) -> None:
    file = write(tmp_path, "bad.jsonl", jsonl(MOONCAKE | {"input_length": 1025}))
    with pytest.raises(TraceError, match="2 blocks of 512 tokens cannot hold input_length 1025; 3 are needed"):
        load_trace(file)
    exact = write(tmp_path, "good.jsonl", jsonl(MOONCAKE | {"input_length": 1024}))
    assert load_trace(exact).max_tok == 1029


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("2023-11-16 18:17:03.98,4808", "2 fields instead of 3"),
        ("2023-11-16 18:17:03.98,4808,10,1", "4 fields instead of 3"),
        ("yesterday,4808,10", "field 'TIMESTAMP'"),
        ("nan,4808,10", "field 'TIMESTAMP'"),
        ("2023-11-16 18:17:03.98,0,10", "field 'ContextTokens'"),
        ("2023-11-16 18:17:03.98,True,10", "field 'ContextTokens'"),
        ("2023-11-16 18:17:03.98,,10", "field 'ContextTokens'"),
        ("2023-11-16 18:17:03.98,4808,-1", "field 'GeneratedTokens'"),
        ("2023-11-16 18:17:03.98,4808,4194305", "field 'GeneratedTokens'"),
    ],
)
def test_a_wrong_csv_row_is_named(tmp_path: Path, row: str, what: str) -> None:
    file = write(tmp_path, "bad.csv", (AZURE + row + "\n").encode())
    with pytest.raises(TraceError, match=rf"bad\.csv:3: .*{what}"):
        load_trace(file)


@pytest.mark.parametrize("content", ["TIMESTAMP,ContextTokens\n", "GeneratedTokens,ContextTokens,TIMESTAMP\n1,2,3\n"])
def test_another_csv_header_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(TraceError, match="the header must be TIMESTAMP,ContextTokens,GeneratedTokens"):
        load_trace(write(tmp_path, "bad.csv", content.encode()))


def test_a_csv_header_alone_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="header but no row"):
        load_trace(write(tmp_path, "bad.csv", AZURE.partition("\n")[0].encode()))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"history": []}, "field 'history': no assistant message"),
        ({"history": SWE_AGENT["history"][:2]}, "field 'history': no assistant message"),
        ({"history": 7}, "field 'history'"),
        ({"history": [{"content": "x"}]}, r"field 'history\.0\.role'"),
        ({"history": [{"role": 3, "content": "x"}]}, r"field 'history\.0\.role'"),
        ({"history": [{"role": "user", "content": 7}]}, r"field 'history\.0\.content'"),
        ({"history": [{"role": "user", "content": ["x"]}]}, r"field 'history\.0\.content'"),
        ({"history": [{"role": "user", "content": [{"type": "text"}]}]}, r"field 'history\.0\.content'"),
        (
            {"history": [{"role": "assistant", "content": "", "tool_calls": "x"}]},
            r"field 'history\.0\.tool_calls'",
        ),
    ],
)
def test_a_wrong_trajectory_is_named(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    file = write(tmp_path, "bad.traj", json.dumps(SWE_AGENT | change).encode())
    with pytest.raises(TraceError, match=rf"bad\.traj: .*{what}"):
        load_trace(file)


def test_a_trajectory_without_history_or_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="field 'history': Field required"):
        load_trace(write(tmp_path, "bad.traj", b'{"trajectory": []}'))
    with pytest.raises(TraceError, match=r"malformed or truncated: .*line 1 column"):
        load_trace(write(tmp_path, "bad.traj", json.dumps(SWE_AGENT).encode()[:-9]))


def test_texts_above_the_limit_are_refused(tmp_path: Path) -> None:
    text = "x" * (4 * MAX_TOK + 1)
    with pytest.raises(TraceError, match=r":1: field 'input': 4194304 tokens of text; the limit is 4194304"):
        load_trace(write(tmp_path, "bad.jsonl", jsonl(LINE_KINDS["lmcache"] | {"input": text})))
    long = {"history": [{"role": "user", "content": text}, {"role": "assistant", "content": "x"}]}
    with pytest.raises(TraceError, match="field 'history': more than 4194304 tokens"):
        load_trace(write(tmp_path, "bad.traj", json.dumps(long).encode()))
