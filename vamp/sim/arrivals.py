"""When each request is sent, and what it asks: recorded sessions in closed loop, or agents that read the replies."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from vamp.workloads.agents import Agent, sampled_reply
from vamp.workloads.trace import Tokens, Trace, Turn


class Sent(NamedTuple):
    """A request as it is sent. `who` and `turn` name it when it completes; `reply` is what the model will say."""

    at_s: float
    session_id: str
    who: int
    turn: int
    asked: Turn
    prompt: Tokens
    reply: Tokens


class Source(Protocol):
    """Where requests come from. True while one is due at a known time."""

    def __bool__(self) -> bool: ...

    @property
    def next_s(self) -> float: ...

    def pop(self) -> Sent:
        """The earliest."""
        ...

    def completed(self, who: int, turn: int, now_s: float) -> bool:
        """A turn completed. True when the session is over."""
        ...


class Arrivals:
    """A session's next turn is sent `think_s` after its previous one completed. With a limit on live sessions, the next
    session starts when one ends."""

    def __init__(self, trace: Trace, concurrency: int | None) -> None:
        self.sessions = trace.sessions
        order = sorted(range(len(self.sessions)), key=lambda i: (self.sessions[i].start_s, i))
        limit = concurrency or len(order)
        self._heap: list[tuple[float, int, int]] = []
        self._pending = deque(order[limit:])
        for i in order[:limit]:
            self._push(i, 0, self.sessions[i].start_s)

    def _push(self, i: int, turn: int, since_s: float) -> None:
        heapq.heappush(self._heap, (since_s + self.sessions[i].turns[turn].think_s, i, turn))

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def next_s(self) -> float:
        return self._heap[0][0]

    def pop(self) -> Sent:
        at_s, i, turn = heapq.heappop(self._heap)
        s = self.sessions[i]
        return Sent(at_s, s.session_id, i, turn, s.turns[turn], s.tokens.prompt(turn), s.tokens.output(turn))

    def completed(self, who: int, turn: int, now_s: float) -> bool:
        if turn + 1 < len(self.sessions[who].turns):
            self._push(who, turn + 1, now_s)
            return False
        if self._pending:
            j = self._pending.popleft()
            self._push(j, 0, max(now_s, self.sessions[j].start_s))
        return True


class AgentArrivals:
    """Agents in closed loop, at most `at_once` alive. What the model says to one is made up when it asks
    (`sampled_reply`)."""

    def __init__(self, agents: Sequence[Agent], at_once: int, seed: int) -> None:
        self._agents, self._seed = agents, seed
        self._replies: dict[int, Tokens] = {}
        self._heap = [(agent.start_s, i) for i, agent in enumerate(agents[:at_once])]
        self._pending = deque(range(at_once, len(agents)))
        heapq.heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def next_s(self) -> float:
        return self._heap[0][0]

    def pop(self) -> Sent:
        at_s, i = heapq.heappop(self._heap)
        agent = self._agents[i]
        reply = self._replies[i] = sampled_reply(agent, at_s, self._seed)
        return Sent(at_s, agent.session_id, i, agent.turn, agent.asked, agent.prompt(), reply)

    def completed(self, who: int, turn: int, now_s: float) -> bool:
        agent = self._agents[who]
        if agent.hear(self._replies.pop(who)):
            heapq.heappush(self._heap, (now_s + agent.asked.think_s, who))
            return False
        if self._pending:
            heapq.heappush(self._heap, (now_s, self._pending.popleft()))
        return True
