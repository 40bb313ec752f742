"""Agents through the client: the reply decides what is asked next, and it comes from the server."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from tests.workloads.client.peer import DONE, Peer, Script, chunk, good_parts, obedient, serving, session, stream, usage
from vamp.workloads.agents import Agent, AgentAssumptions, team
from vamp.workloads.client import AgentTalk, ClientOptions, RecordedTalk, ReplayResult, converse_async

SMALL = AgentAssumptions(
    tasks=3,
    agents=2,
    start_span_s=0.01,
    first_tok=40.0,
    reply_tok=10.0,
    tool_tok=30.0,
    tool_max_tok=60,
    tool_s=0.005,
    history_tok=300,
    submit_share=0,
)


def run(script: Script, assumed: AgentAssumptions = SMALL, **settings: Any) -> tuple[ReplayResult, Peer]:
    async def both() -> tuple[ReplayResult, Peer]:
        async with serving(script) as peer:
            options = ClientOptions(peer.url, concurrency=assumed.agents, **settings)
            talks = [AgentTalk(agent) for agent in team(assumed, seed=0, vocab_tok=1000)]
            return await converse_async(talks, options), peer

    return asyncio.run(both())


def first_ids(first: int) -> Script:
    async def script(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, good_parts(body["max_tokens"], first=first))

    return script


def asked_of(peer: Peer, task: int) -> list[list[int]]:
    """Prompts of one task in order: they begin with its first prompt."""
    head = Agent(task, SMALL, 0, 1000).prompt().tolist()
    return [body["prompt"] for body in peer.bodies if body["prompt"][: len(head)] == head]


def test_the_servers_own_reply_is_in_the_next_prompt() -> None:
    _, peer = run(obedient, max_run_s=0.6)
    prompts = asked_of(peer, 0)
    assert len(prompts) > 2
    lengths = [body["max_tokens"] for body in peer.bodies if body["prompt"] == prompts[0]]
    reply = list(range(7, 7 + lengths[0]))
    assert prompts[1][: len(prompts[0]) + len(reply)] == prompts[0] + reply


def test_another_reply_leads_to_another_request() -> None:
    one, same, other = (asked_of(run(first_ids(n), max_run_s=0.6)[1], 0) for n in (7, 7, 107))
    assert one[0] == same[0] == other[0]
    assert one[1] == same[1]
    n_reply = next(body["max_tokens"] for body in run(obedient, max_run_s=0.3)[1].bodies if body["prompt"] == one[0])
    returned = [prompts[1][len(prompts[0]) + n_reply :] for prompts in (one, other)]
    assert min(map(len, returned)) > 0 and returned[0] != returned[1]  # another tool result, not only another reply


def test_agents_work_until_the_time_is_up() -> None:
    result, peer = run(obedient, max_run_s=0.5)
    assert result.stopped == "still running after 0.5 s"
    assert {turn.record.session_id for turn in result.turns} == {"task00", "task01"}  # two at once, none submits
    assert peer.most_open <= 2
    by_task = [t.record.turn for t in result.turns if t.record.session_id == "task00"]
    assert by_task == list(range(len(by_task)))


def test_an_agent_that_submits_makes_room_for_the_next_task() -> None:
    eager = AgentAssumptions(tasks=3, agents=2, start_span_s=0.01, first_tok=40.0, history_tok=300, submit_share=1)
    result, _ = run(obedient, eager)
    assert result.stopped == "" and not result.failures
    assert sorted(turn.record.session_id for turn in result.turns) == ["task00", "task01", "task02"]


@pytest.mark.parametrize("go_on", [False, True])
def test_an_agent_ends_where_a_request_fails(go_on: bool) -> None:
    async def short(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, [chunk(7), usage(1), DONE])

    result, _ = run(short, go_on_after_failure=go_on)
    assert len(result.turns) == 3 and sum(result.failures.values()) == 3


def test_a_recorded_session_asks_the_same_whatever_it_hears() -> None:
    made = session("a", [(4, 2, 0.0), (9, 2, 0.0)])
    deaf, carrying = (RecordedTalk(made, None, carry_replies=carry) for carry in (False, True))
    for talk in (deaf, carrying):
        assert (first := talk.ask()) is not None and first.number == 0
        talk.heard([900, 901])
    second, changed = deaf.ask(), carrying.ask()
    assert second is not None and second.prompt == made.tokens.prompt(1).tolist()
    assert changed is not None and changed.prompt[4:6] == [900, 901]
    assert np.array_equal(changed.prompt[6:], second.prompt[6:])
    assert deaf.ask() is None
