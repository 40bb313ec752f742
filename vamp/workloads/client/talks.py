"""Who asks: a recorded session, or an agent that decides by the replies. The replayer sees no difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from vamp.workloads.agents import Agent
from vamp.workloads.client.prompts import Conversation
from vamp.workloads.trace import Session, Turn


class Asked(NamedTuple):
    """The next request: its number in the session, its lengths and think time, its prompt."""

    number: int
    turn: Turn
    prompt: list[int]


class Talk(Protocol):
    """One session under way."""

    @property
    def session_id(self) -> str: ...

    @property
    def start_s(self) -> float: ...

    def ask(self) -> Asked | None:
        """The next request; None when the session is over."""
        ...

    def heard(self, reply: Sequence[int]) -> None:
        """The server's reply to what was asked last. Not called for a request that failed."""
        ...


class RecordedTalk:
    """The turns of a recording, whatever the replies; with `carry_replies` they take the place of the recorded ones."""

    def __init__(self, session: Session, vocab_tok: int | None, carry_replies: bool) -> None:
        self._session, self._carry = session, carry_replies
        self._prompts, self._next = Conversation(session, vocab_tok), 0

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def start_s(self) -> float:
        return self._session.start_s

    def ask(self) -> Asked | None:
        number = self._next
        if number == len(self._session.turns):
            return None
        self._next += 1
        return Asked(number, self._session.turns[number], self._prompts.prompt(number))

    def heard(self, reply: Sequence[int]) -> None:
        if self._carry:
            self._prompts.heard(self._next - 1, reply)


class AgentTalk:
    """An agent; it needs every reply, and ends where one fails."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self._goes_on = agent, True

    @property
    def session_id(self) -> str:
        return self._agent.session_id

    @property
    def start_s(self) -> float:
        return self._agent.start_s

    def ask(self) -> Asked | None:
        if not self._goes_on:
            return None
        self._goes_on = False  # until the reply is there
        return Asked(self._agent.turn, self._agent.asked, self._agent.prompt().tolist())

    def heard(self, reply: Sequence[int]) -> None:
        self._goes_on = self._agent.hear(np.asarray(reply, dtype=np.int32))
