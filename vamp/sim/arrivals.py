"""When each request of a trace is sent: sessions in closed loop, at most so many alive."""

from __future__ import annotations

import heapq
from collections import deque

from vamp.workloads.trace import Session, Trace


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

    def pop(self) -> tuple[float, Session, int, int]:
        """The earliest: its time, session, session index and turn."""
        at_s, i, turn = heapq.heappop(self._heap)
        return at_s, self.sessions[i], i, turn

    def completed(self, i: int, turn: int, now_s: float) -> bool:
        """A turn completed. True when the session is over."""
        if turn + 1 < len(self.sessions[i].turns):
            self._push(i, turn + 1, now_s)
            return False
        if self._pending:
            j = self._pending.popleft()
            self._push(j, 0, max(now_s, self.sessions[j].start_s))
        return True
