"""Virtual time."""

from __future__ import annotations


class VirtualClock:
    """Seconds since the run began; moves only forward, and only when the simulator says so."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def advance_to(self, t_s: float) -> None:
        self._now_s = max(self._now_s, t_s)
