from __future__ import annotations

import numpy as np
import pytest

from vamp.errors import ConfigError
from vamp.workloads.assumptions import StandinAssumptions
from vamp.workloads.standin import LABEL, pick, standin
from vamp.workloads.trace import FIRST_TOK, VOCAB_TOK, Session, Trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return standin(StandinAssumptions(), seed=0)


def by_id(trace: Trace) -> dict[str, Session]:
    return {s.session_id: s for s in trace.sessions}


def test_it_says_that_it_is_a_stand_in(trace: Trace) -> None:
    assert trace.stand_in
    assert trace.label == LABEL == "stand-in for the 2,103-turn recording"


def test_the_printed_facts_hold(trace: Trace) -> None:
    turns = [len(s.turns) for s in trace.sessions]
    assert len(turns) == 48
    assert sum(turns) == trace.n_turns == 2103
    assert sum(n > 61 for n in turns) >= 12  # still have turn 61, counted from 0
    assert sum(n > 62 for n in turns) < 12
    assert all(t.think_s > 0 for s in trace.sessions for t in s.turns[1:])
    assert all(s.turns[0].think_s == 0 for s in trace.sessions)


@pytest.mark.parametrize("trace_seed", range(5))
def test_totals_are_the_declared_ones_whatever_the_draw(trace_seed: int) -> None:
    assumed = StandinAssumptions(trace_seed=trace_seed)
    sessions = standin(assumed, seed=3).sessions
    turns = [t for s in sessions for t in s.turns]
    assert np.mean([t.prompt_tok for t in turns]) == pytest.approx(assumed.mean_prompt_tok, rel=5e-3)
    assert np.mean([t.output_tok for t in turns]) == pytest.approx(assumed.output_tok, rel=5e-3)
    assert np.mean([s.turns[0].prompt_tok for s in sessions]) == pytest.approx(assumed.first_tok, rel=5e-3)
    assert np.mean([t.think_s for s in sessions for t in s.turns[1:]]) == pytest.approx(
        StandinAssumptions().think_s, rel=2e-2
    )


def test_another_trace_seed_is_another_trace(trace: Trace) -> None:
    other = standin(StandinAssumptions(trace_seed=1), seed=0)
    assert other.sessions[0].turns != trace.sessions[0].turns


def test_a_prompt_is_the_last_prompt_its_reply_and_a_tool_result(trace: Trace) -> None:
    for session in trace.sessions[:5]:
        for k in range(len(session.turns) - 1):
            before, after = session.turns[k], session.turns[k + 1]
            said = np.concatenate([session.tokens.prompt(k), session.tokens.output(k)])
            assert after.prompt_tok - len(said) >= 16
            assert (session.tokens.prompt(k + 1)[: len(said)] == said).all()
            assert len(said) == before.prompt_tok + before.output_tok


def test_ids_are_in_range_and_sessions_share_nothing(trace: Trace) -> None:
    first = [s.tokens.prompt(0) for s in trace.sessions]
    assert min(ids.min() for ids in first) >= FIRST_TOK
    assert max(ids.max() for ids in first) < VOCAB_TOK
    assert {ids.dtype for ids in first} == {np.dtype(np.int32)}
    assert len({tuple(ids[:4].tolist()) for ids in first}) == 48


def test_shared_tokens_are_shared_when_asked_for() -> None:
    sessions = standin(StandinAssumptions(shared_tok=1500), seed=0).sessions
    assert len({tuple(s.tokens.prompt(0)[:1500].tolist()) for s in sessions}) == 1
    assert len({tuple(s.tokens.prompt(0)[1500:1504].tolist()) for s in sessions}) == 48


def test_the_run_seed_moves_starts_and_nothing_else(trace: Trace) -> None:
    other = standin(StandinAssumptions(), seed=1)
    assert [s.session_id for s in other.sessions] != [s.session_id for s in trace.sessions]
    for name, session in by_id(other).items():
        same = by_id(trace)[name]
        assert session.turns == same.turns
        assert (session.tokens.prompt(3) == same.tokens.prompt(3)).all()
        assert session.start_s != same.start_s
    starts = [s.start_s for s in other.sessions]
    assert starts == sorted(starts)
    assert 0 <= starts[0] < starts[-1] <= 18


def test_the_same_seeds_give_the_same_trace(trace: Trace) -> None:
    again = standin(StandinAssumptions(), seed=0)
    assert [(s.session_id, s.start_s, s.turns) for s in again.sessions] == [
        (s.session_id, s.start_s, s.turns) for s in trace.sessions
    ]
    assert (again.sessions[7].tokens.prompt(5) == trace.sessions[7].tokens.prompt(5)).all()


@pytest.mark.parametrize(("scale", "kept"), [(0.5, 24), (0.25, 12), (0.001, 2)])
def test_scale_keeps_some_sessions_as_they_are(trace: Trace, scale: float, kept: int) -> None:
    small = standin(StandinAssumptions(), seed=0, scale=scale)
    assert len(small.sessions) == kept
    for name, session in by_id(small).items():
        assert session.turns == by_id(trace)[name].turns
        assert session.start_s == by_id(trace)[name].start_s


def test_a_quarter_still_has_short_and_deep_sessions() -> None:
    turns = [len(s.turns) for s in standin(StandinAssumptions(), seed=0, scale=0.25).sessions]
    assert min(turns) <= 20
    assert max(turns) >= 62


def test_pick_is_evenly_spaced() -> None:
    assert pick(range(10), 10) == list(range(10))
    assert pick(range(10), 2) == [2, 7]
    assert pick(range(3), 1) == [1]


def test_contradicting_assumptions_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="tool_tok: a total of"):
        standin(StandinAssumptions(tool_max_tok=300), seed=0)
    with pytest.raises(ConfigError, match="first_tok: a total of"):
        standin(StandinAssumptions(shared_tok=20_000), seed=0)
