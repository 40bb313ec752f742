"""What the controller observes: the hit rate r_hit of Eq. 1 and the queueing delay t_queue of Eq. 4."""

from __future__ import annotations

from collections import deque


class HitWindow:
    """Prefix-cache hit rate over the last `size` admitted requests.

    vLLM's own counters also count failed admission attempts, hundreds per request under pressure; here a request
    counts once, when it is admitted.
    """

    def __init__(self, size: int) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=size)
        self._queries_tok = 0
        self._hits_tok = 0

    def observe(self, queries_tok: int, hits_tok: int) -> None:
        if len(self._seen) == self._seen.maxlen:
            old_queries, old_hits = self._seen[0]
            self._queries_tok -= old_queries
            self._hits_tok -= old_hits
        self._seen.append((queries_tok, hits_tok))
        self._queries_tok += queries_tok
        self._hits_tok += hits_tok

    @property
    def r_hit(self) -> float:
        """0..1; 0 before anything was admitted."""
        return self._hits_tok / self._queries_tok if self._queries_tok else 0.0


class QueueDelay:
    """t_queue: configured at first, then the latest observed delay from preemption to rescheduling."""

    def __init__(self, initial_us: float) -> None:
        self.us = initial_us
        self._since_s: dict[str, float] = {}

    def preempted(self, request_id: str, now_s: float) -> None:
        self._since_s.setdefault(request_id, now_s)

    def rescheduled(self, request_id: str, now_s: float) -> None:
        since = self._since_s.pop(request_id, None)
        if since is not None:
            self.us = max(0.0, (now_s - since) * 1e6)

    def forget(self, request_id: str) -> None:
        """The request ended while preempted."""
        self._since_s.pop(request_id, None)

    def __bool__(self) -> bool:
        return bool(self._since_s)

    def waiting(self) -> tuple[str, ...]:
        return tuple(self._since_s)
