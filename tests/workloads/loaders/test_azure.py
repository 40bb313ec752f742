from __future__ import annotations

from pathlib import Path

import pytest

from vamp.workloads.loaders import load_trace

from .helpers import write

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = HEADER + (
    "2023-11-16 18:17:04.5000000,300,8\n"
    "2023-11-16 18:17:03.2500000,200,9\r\n"
    "2023-11-16 18:17:07.0000000,200,10"  # no end of line, as in the public file
)


def test_every_row_is_a_session_of_its_own(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, "a.csv", ROWS.encode()))
    assert [(t.prompt_tok, t.output_tok) for s in trace.sessions for t in s.turns] == [
        (200, 9),
        (300, 8),
        (200, 10),
    ]
    assert [s.start_s for s in trace.sessions] == pytest.approx([0.0, 1.25, 3.75])
    assert trace.notes["timestamps_sorted"] == 1
    assert len({s.session_id for s in trace.sessions}) == 3


def test_rows_share_nothing(tmp_path: Path) -> None:
    sessions = load_trace(write(tmp_path, "a.csv", ROWS.encode())).sessions
    starts = {tuple(ids[:4].tolist()) for s in sessions for ids in (s.tokens.prompt(0), s.tokens.output(0))}
    assert len(starts) == 6


def test_times_with_a_zone_are_read_too(tmp_path: Path) -> None:
    rows = HEADER + "2024-05-10 02:00:00.5+02:00,300,8\n2024-05-10 00:00:00,200,9\n"
    assert [s.start_s for s in load_trace(write(tmp_path, "a.csv", rows.encode())).sessions] == [0.0, 0.5]


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    file = write(tmp_path, "a.csv", (ROWS + "\nbroken").encode())
    assert load_trace(file, limit_turns=3).n_turns == 3
