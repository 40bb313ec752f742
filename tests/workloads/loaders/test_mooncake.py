from __future__ import annotations

from pathlib import Path

from vamp.workloads.loaders import load_trace
from vamp.workloads.trace import Session

from .helpers import Row, jsonl, write

SYSTEM = 0


def request(time_ms: float, blocks: list[int], tok: int, out: int = 5) -> Row:
    return {"timestamp": time_ms, "input_length": tok, "output_length": out, "hash_ids": blocks}


def load(folder: Path, *rows: Row) -> list[Session]:
    return list(load_trace(write(folder, "m.jsonl", jsonl(*rows))).sessions)


def lengths(sessions: list[Session]) -> list[list[int]]:
    return [[t.prompt_tok for t in s.turns] for s in sessions]


def test_a_request_continues_the_session_whose_full_blocks_it_extends(tmp_path: Path) -> None:
    sessions = load(
        tmp_path,
        request(1000, [SYSTEM, 1, 2], 1100),
        request(2000, [SYSTEM, 7, 8], 1100),
        request(4500, [SYSTEM, 1, 3, 4], 1600),  # 2 was a partial block
        request(9000, [SYSTEM, 1, 3, 4, 5], 2100),
    )
    assert lengths(sessions) == [[1100, 1600, 2100], [1100]]
    assert [s.start_s for s in sessions] == [0.0, 1.0]
    assert [t.think_s for t in sessions[0].turns] == [0.0, 3.5, 4.5]


def test_one_shared_block_proves_nothing(tmp_path: Path) -> None:
    sessions = load(tmp_path, request(0, [SYSTEM, 1], 600), request(1, [SYSTEM, 2], 700))
    assert lengths(sessions) == [[600], [700]]


def test_the_longest_prefix_wins_over_the_most_recent(tmp_path: Path) -> None:
    sessions = load(
        tmp_path,
        request(0, [0, 1, 2], 1536),
        request(1, [0, 1], 1024),
        request(2, [0, 1, 2, 3], 2048),
        request(3, [0, 1, 9], 1536),
    )
    assert lengths(sessions) == [[1536, 2048], [1024, 1536]]


def test_among_equals_the_most_recent_is_continued(tmp_path: Path) -> None:
    sessions = load(
        tmp_path,
        request(0, [0, 1, 50], 1100),
        request(1, [0, 1, 2], 1536),  # continues the first
        request(2, [0, 1, 51], 1100),  # starts anew: nobody ends with 0, 1
        request(3, [0, 1, 52], 1200),
    )
    assert lengths(sessions) == [[1100, 1536], [1100, 1200]]


def test_a_continued_session_is_not_found_under_its_old_end(tmp_path: Path) -> None:
    sessions = load(
        tmp_path,
        request(0, [0, 1], 1024),
        request(1, [0, 1, 2], 1536),
        request(2, [0, 1, 3], 1536),  # a branch
    )
    assert lengths(sessions) == [[1024, 1536], [1536]]


def test_equal_blocks_are_equal_tokens_and_the_last_is_cut(tmp_path: Path) -> None:
    a, b = load(tmp_path, request(0, [0, 1, 2], 1030), request(1, [0, 3, 1], 1100))
    pa, pb = a.tokens.prompt(0), b.tokens.prompt(0)
    assert len(pa) == 1030
    assert pa[:512].tolist() == pb[:512].tolist()
    assert pa[512:1024].tolist() != pb[512:1024].tolist()
    assert pa[512 : 512 + 76].tolist() == pb[1024:].tolist()  # block 1, wherever it stands


def test_turns_share_their_full_blocks(tmp_path: Path) -> None:
    (session,) = load(tmp_path, request(0, [0, 1, 2], 1100), request(1, [0, 1, 3], 1400))
    first, second = session.tokens.prompt(0), session.tokens.prompt(1)
    assert first[:1024].tolist() == second[:1024].tolist()
    assert first[1024:].tolist() != second[1024:1100].tolist()


def test_unordered_requests_are_sorted_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path, "m.jsonl", jsonl(request(5000, [0, 1, 2], 1536), request(2000, [0, 1], 1024)))
    trace = load_trace(file)
    assert trace.notes["timestamps_sorted"] == 1
    assert lengths(list(trace.sessions)) == [[1024, 1536]]
    assert trace.sessions[0].turns[1].think_s == 3.0


def test_two_files_share_nothing_though_their_ids_are_equal(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path, name, jsonl(request(0, [0, 1], 1024)))
    a, b = load_trace(tmp_path).sessions
    assert (a.session_id, b.session_id) == ("a.jsonl#0", "b.jsonl#0")
    assert a.tokens.prompt(0)[:8].tolist() != b.tokens.prompt(0)[:8].tolist()


def test_more_blocks_than_needed_are_cut(tmp_path: Path) -> None:
    (session,) = load(tmp_path, request(0, [0, 1, 2, 3], 600))
    assert session.turns[0].prompt_tok == len(session.tokens.prompt(0)) == 600


def test_every_reply_is_its_own(tmp_path: Path) -> None:
    sessions = load(tmp_path, request(0, [0, 1], 600), request(1, [0, 2], 600), request(2, [0, 3], 600))
    assert len({tuple(s.tokens.output(0).tolist()) for s in sessions}) == 3
