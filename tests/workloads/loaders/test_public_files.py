"""The public recordings themselves, where they are at hand."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from vamp.workloads.loaders import load_trace
from vamp.workloads.trace import Session, Trace


def check_lengths(trace: Trace, every: int = 1) -> None:
    for session in trace.sessions[::every]:
        for k, turn in enumerate(session.turns):
            assert len(session.tokens.prompt(k)) == turn.prompt_tok
            assert len(session.tokens.output(k)) == turn.output_tok


def extends(session: Session, k: int, slack_tok: int) -> bool:
    """Prompt k repeats the prompt before it, except for the last `slack_tok` of that."""
    kept = max(0, session.turns[k - 1].prompt_tok - slack_tok)
    return bool(np.array_equal(session.tokens.prompt(k)[:kept], session.tokens.prompt(k - 1)[:kept]))


@pytest.mark.parametrize(
    ("name", "sessions", "turns", "extending"),
    [("miniswe", 20, 402, 382), ("magagent", 25, 746, 317), ("taubench", 24, 471, 265)],
)
def test_lmcache_sessions(traces: Path, name: str, sessions: int, turns: int, extending: int) -> None:
    trace = load_trace(traces / "lmcache_agent_trace" / name)
    assert (len(trace.sessions), trace.n_turns) == (sessions, turns)
    check_lengths(trace)
    pairs = [(s, k) for s in trace.sessions for k in range(1, len(s.turns))]
    assert sum(extends(s, k, 1) for s, k in pairs) == extending
    assert trace.max_tok == {"miniswe": 36_376, "magagent": 17_491, "taubench": 1_068}[name]
    assert trace.notes["empty_outputs"] == (283 if name == "taubench" else 0)
    assert trace.notes["empty_inputs"] == (53 if name == "magagent" else 0)
    assert min(t.think_s for s in trace.sessions for t in s.turns) >= 0


def test_two_copies_of_all_lmcache_sessions_fit_into_little_memory(traces: Path) -> None:
    tracemalloc.start()
    try:
        trace = load_trace(traces / "lmcache_agent_trace").repeated(2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(trace.sessions), trace.n_turns) == (138, 3238)
    assert trace.notes["files_skipped"] == 1  # the licence
    assert peak < 100 * 2**20


def test_swe_agent_trajectories(traces: Path) -> None:
    trace = load_trace(traces / "swe_agent")
    assert (len(trace.sessions), trace.n_turns) == (22, 230)
    assert trace.notes["files_skipped"] == 2
    check_lengths(trace)
    for session in trace.sessions:
        assert all(extends(session, k, 0) for k in range(1, len(session.turns)))


@pytest.mark.parametrize(
    ("name", "requests", "sessions"), [("conversation", 12_031, 8_099), ("synthetic", 3_993, 2_660)]
)
def test_mooncake_requests(traces: Path, name: str, requests: int, sessions: int) -> None:
    trace = load_trace(traces / "mooncake" / f"{name}_trace.jsonl.gz")
    assert (trace.n_turns, len(trace.sessions)) == (requests, sessions)
    assert trace.notes["timestamps_sorted"] == 0
    check_lengths(trace, every=20)
    chains = [s for s in trace.sessions if len(s.turns) > 1]
    assert all(extends(s, k, 512) for s in chains[::20] for k in range(1, len(s.turns)))
    strangers = list(pairwise(trace.sessions[::50]))
    same = sum(np.array_equal(a.tokens.prompt(0)[:1024], b.tokens.prompt(0)[:1024]) for a, b in strangers)
    assert same < 0.05 * len(strangers)


@pytest.mark.parametrize(("name", "rows"), [("code", 8_819), ("conv", 19_366)])
def test_azure_requests(traces: Path, name: str, rows: int) -> None:
    trace = load_trace(traces / "azure" / f"AzureLLMInferenceTrace_{name}.csv")
    assert (trace.n_turns, len(trace.sessions)) == (rows, rows)  # the header is not counted
    check_lengths(trace, every=500)


def test_a_limit_reads_only_the_beginning(traces: Path) -> None:
    trace = load_trace(traces / "lmcache_agent_trace", limit_turns=100)
    assert trace.n_turns == 100
    assert trace.notes["files"] < 10
