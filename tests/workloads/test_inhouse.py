from __future__ import annotations

import numpy as np
import pytest

from vamp.errors import ConfigError
from vamp.workloads.inhouse import TURNS, inhouse


def test_prompts_grow_by_the_declared_step() -> None:
    trace = inhouse(3, growth_tok=100, output_tok=30, seed=1)
    assert [len(s.turns) for s in trace.sessions] == [TURNS] * 3
    for session in trace.sessions:
        assert [t.prompt_tok for t in session.turns] == [100 * (k + 1) for k in range(12)]
        assert {t.output_tok for t in session.turns} == {30}
        assert {t.think_s for t in session.turns} == {0.0}
        assert session.start_s == 0.0
    assert trace.max_tok == 1230
    assert not trace.stand_in


def test_a_prompt_is_the_last_prompt_its_reply_and_new_tokens() -> None:
    session = inhouse(1, growth_tok=100, output_tok=30, seed=1).sessions[0]
    for k in range(11):
        before = np.concatenate([session.tokens.prompt(k), session.tokens.output(k)])
        assert session.tokens.prompt(k + 1)[: 130 + 100 * k].tolist() == before.tolist()
        assert len(session.tokens.prompt(k + 1)) == 100 * (k + 2)
    assert len(session.tokens.output(11)) == 30


def test_sessions_share_nothing() -> None:
    trace = inhouse(20, growth_tok=100, output_tok=30, seed=1)
    assert len({tuple(s.tokens.prompt(0)[:4].tolist()) for s in trace.sessions}) == 20


def test_the_seed_makes_the_ids() -> None:
    one, same, other = (inhouse(2, 100, 30, seed=s).sessions[1].tokens.prompt(3).tolist() for s in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize(("scale", "turns"), [(1.0, 12), (0.5, 6), (0.01, 2)])
def test_scale_shortens_the_sessions(scale: float, turns: int) -> None:
    trace = inhouse(3, 100, 30, seed=1, scale=scale)
    assert {len(s.turns) for s in trace.sessions} == {turns}
    assert f"{turns}-turn" in trace.label


@pytest.mark.parametrize("output_tok", [0, 100, 500])
def test_a_reply_must_fit_into_the_growth(output_tok: int) -> None:
    with pytest.raises(ConfigError, match=r"output_tok.*1\.\.99"):
        inhouse(1, growth_tok=100, output_tok=output_tok, seed=0)


def test_first_prompt_and_turns_can_differ_from_the_papers() -> None:
    (session,) = inhouse(1, growth_tok=100, output_tok=30, seed=1, first_tok=400, turns=3).sessions
    assert [t.prompt_tok for t in session.turns] == [400, 500, 600]
    before = np.concatenate([session.tokens.prompt(1), session.tokens.output(1)])
    assert session.tokens.prompt(2)[:530].tolist() == before.tolist()
