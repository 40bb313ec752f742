"""The LMCache stand-in keeps the public counts; only what a turn appends is assumed."""

from __future__ import annotations

import numpy as np
import pytest

from vamp.errors import ConfigError
from vamp.experiments.spec import WorkloadSpec
from vamp.workloads import build_trace
from vamp.workloads.lmcache_standin import FAMILIES, TURNS_MAX, TURNS_MIN, lmcache_standin
from vamp.workloads.trace import Trace


def of(trace: Trace, family: str) -> Trace:
    return Trace(family, tuple(s for s in trace.sessions if s.session_id.startswith(family)))


def test_every_kind_has_its_public_share_at_any_load() -> None:
    for n in (64, 128, 690):
        trace = lmcache_standin({}, n, 0)
        assert len(trace.sessions) == n
        for kind in FAMILIES:
            share = kind.sessions / sum(k.sessions for k in FAMILIES)
            assert len(of(trace, kind.name).sessions) / n == pytest.approx(share, abs=0.06)


def test_turns_replies_and_think_times_are_the_public_means() -> None:
    trace = lmcache_standin({}, 690, 0)
    for kind in FAMILIES:
        own = of(trace, kind.name)
        turns = [t for s in own.sessions for t in s.turns]
        assert all(TURNS_MIN <= len(s.turns) <= TURNS_MAX for s in own.sessions)
        assert own.n_turns / len(own.sessions) == pytest.approx(kind.turns / kind.sessions, rel=0.15)
        assert np.mean([t.output_tok for t in turns]) == pytest.approx(kind.reply_tok, rel=0.15)
        assert np.mean([s.turns[0].prompt_tok for s in own.sessions]) == kind.first_tok
        later = [t.think_s for s in own.sessions for t in s.turns[1:]]
        assert np.mean(later) == pytest.approx(kind.think_s, rel=0.15)


def test_prompts_extend_prompt_and_reply() -> None:
    for session in lmcache_standin({}, 10, 0).sessions:
        for n in range(len(session.turns) - 1):
            earlier = np.concatenate([session.tokens.prompt(n), session.tokens.output(n)])
            assert np.array_equal(session.tokens.prompt(n + 1)[: len(earlier)], earlier)


def test_the_factor_lengthens_later_prompts_and_a_seed_moves_the_starts_only() -> None:
    one, long, moved = (lmcache_standin({"growth_factor": f}, 20, seed) for f, seed in ((1, 0), (8, 0), (1, 1)))
    assert sum(s.max_tok for s in long.sessions) > 1.5 * sum(s.max_tok for s in one.sessions)
    assert [s.turns[0].prompt_tok for s in one.sessions] == [s.turns[0].prompt_tok for s in long.sessions]
    assert [s.turns for s in one.sessions] == [s.turns for s in moved.sessions]
    assert [s.start_s for s in one.sessions] != [s.start_s for s in moved.sessions]


def test_it_is_reached_through_a_spec_and_says_that_it_is_a_stand_in() -> None:
    trace = build_trace(WorkloadSpec(kind="lmcache", concurrency=8, scale=0.5), seed=0, growth_tok=1, output_tok=1)
    assert trace.stand_in and len(trace.sessions) == 4 and "stand-in" in trace.label
    with pytest.raises(ConfigError, match="unknown override first_tok"):
        lmcache_standin({"first_tok": 3.0}, 8, 0)
