"""What the scheduler tells the ranks. Values only; they travel by pickle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemapCommand:
    """Rides on `SchedulerOutput` to every rank: from this step on, that many groups are offloaded.

    Attributes:
        seq: counts commands from 1, so that a rank can tell that it missed none.
        n_groups: groups offloaded in all.
        capacity_blk: pool size that goes with it.
    """

    seq: int
    n_groups: int
    capacity_blk: int
