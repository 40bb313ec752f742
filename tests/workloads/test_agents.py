"""Agents: bounded histories, decisions that hang on the reply, and the same task for every system."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vamp.errors import ConfigError
from vamp.workloads.agents import Agent, AgentAssumptions, agent_assumptions, sampled_reply, team
from vamp.workloads.trace import FIRST_TOK, VOCAB_TOK

SMALL = AgentAssumptions(
    tasks=6,
    agents=3,
    first_tok=300.0,
    reply_tok=40.0,
    tool_tok=60.0,
    tool_max_tok=200,
    history_tok=1_000,
    submit_share=0,
)


def worked(turns: int, seed: int = 0, assumed: AgentAssumptions = SMALL, task: int = 0) -> Agent:
    agent = Agent(task, assumed, seed)
    for n in range(turns):
        agent.hear(sampled_reply(agent, float(n), seed))
    return agent


@given(turns=st.integers(0, 60), task=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_a_prompt_is_as_long_as_asked_and_never_longer_than_the_history(turns: int, task: int) -> None:
    agent = worked(turns, task=task)
    prompt = agent.prompt()
    assert len(prompt) == agent.asked.prompt_tok <= SMALL.history_tok
    assert prompt.min() >= FIRST_TOK and prompt.max() < VOCAB_TOK
    assert agent.asked.prompt_tok + agent.asked.output_tok <= SMALL.longest_tok
    assert agent.turn == turns


def test_the_next_prompt_extends_prompt_and_reply_until_the_history_is_cut() -> None:
    agent = Agent(0, SMALL, 0)
    for n in range(40):
        before, reply, cuts = agent.prompt(), sampled_reply(agent, float(n), 0), agent.cuts
        agent.hear(reply)
        earlier = np.concatenate([before, reply])
        extends = np.array_equal(agent.prompt()[: len(earlier)], earlier)
        assert extends == (agent.cuts == cuts)
        assert np.array_equal(agent.prompt()[: len(agent._first)], agent._first)  # a cut leaves the task
    assert agent.cuts > 0


def test_what_an_agent_does_depends_on_the_reply_and_on_nothing_else() -> None:
    one, same, other = (Agent(3, SMALL, seed=0) for _ in range(3))
    reply = sampled_reply(one, 1.0, 0)
    changed = reply.copy()
    changed[-1] += 1
    for agent, heard in ((one, reply), (same, reply), (other, changed)):
        agent.hear(heard)
    assert one.asked == same.asked and np.array_equal(one.prompt(), same.prompt())
    assert one.asked != other.asked


def test_a_reply_depends_on_the_moment_of_asking() -> None:
    """So two systems with other timing lead an agent along different paths."""
    agent = Agent(0, SMALL, 0)
    assert np.array_equal(sampled_reply(agent, 5.0, 0), sampled_reply(agent, 5.0, 0))
    assert not np.array_equal(sampled_reply(agent, 5.0, 0), sampled_reply(agent, 5.001, 0))
    assert len(sampled_reply(agent, 5.0, 0)) == agent.asked.output_tok


def test_a_seed_moves_the_starts_and_leaves_the_tasks() -> None:
    one, two = team(SMALL, 0), team(SMALL, 1)
    assert [a.start_s for a in one] != [a.start_s for a in two]
    assert all(np.array_equal(a.prompt(), b.prompt()) for a, b in zip(one, two, strict=True))
    assert len({a.session_id for a in one}) == SMALL.tasks


def test_agents_submit_at_the_declared_share() -> None:
    eager = AgentAssumptions(first_tok=100.0, history_tok=1_000, submit_share=0.25)
    turns = []
    for task in range(300):
        agent = Agent(task, eager, 0)
        while agent.hear(sampled_reply(agent, float(agent.turn), 0)):
            assert agent.turn < 200
        turns.append(agent.turn + 1)
    assert np.mean(turns) == pytest.approx(4.0, rel=0.15)
    assert worked(300, assumed=SMALL).turn == 300  # share 0: never


def test_means_are_the_declared_ones() -> None:
    wide = AgentAssumptions(tasks=400, first_tok=10_000, history_tok=10**6)
    agents = team(wide, 0)
    assert np.mean([a.asked.prompt_tok for a in agents]) == pytest.approx(10_000, rel=0.06)
    assert np.mean([a.asked.output_tok for a in agents]) == pytest.approx(wide.reply_tok, rel=0.06)
    for a in agents:
        a.hear(sampled_reply(a, 0.0, 0))
    assert np.mean([a.asked.think_s for a in agents]) == pytest.approx(wide.tool_s, rel=0.12)


def test_scaled_and_shrunk_stay_in_proportion() -> None:
    given = AgentAssumptions()
    assert given.scaled(1.0) == given
    assert (given.scaled(0.5).agents, given.scaled(0.5).tasks) == (given.agents // 2, 24)
    small = given.shrunk(agents=4, tok_divisor=64, time_divisor=200)
    assert small.agents == 4 and small.history_tok == given.history_tok // 64
    assert small.tool_s == pytest.approx(given.tool_s / 200)


def test_overrides_are_checked() -> None:
    assert agent_assumptions({"agents": 7}).agents == 7
    with pytest.raises(ConfigError, match=r"unknown override think_s; valid names: .*tool_s"):
        agent_assumptions({"think_s": 3.0})
    with pytest.raises(ConfigError, match="history_tok"):
        agent_assumptions({"history_tok": 1})
