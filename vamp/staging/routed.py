"""Staging of what this step's routing selects, and no more: after the router, before the kernel.

Nothing hides these copies, but a step of few tokens needs few of the offloaded experts (ARCHITECTURE, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vamp.memory.remapper import Remapper
from vamp.memory.spans import ShardRange
from vamp.staging.stager import Copier, ExpertIds


class Routed:
    """A `Stager` that copies on the calling thread. Experts that were not selected keep whatever the buffer holds."""

    def __init__(self, remapper: Remapper, copier: Copier) -> None:
        self._remapper, self._copier = remapper, copier

    def begin_step(self) -> None:
        pass

    def before_experts(self, layer: int, experts: ExpertIds) -> None:
        for shards in needed(self._remapper.offloaded(layer), experts):
            self._copier.stage(shards)

    def after_experts(self, layer: int) -> None:
        pass

    def drain(self) -> None:
        pass


def needed(offloaded: ShardRange, experts: ExpertIds) -> Iterator[ShardRange]:
    """The selected ones of a layer's offloaded shards, neighbours in one range."""
    if offloaded.first == offloaded.last:
        return
    wanted = np.unique(experts[(experts >= offloaded.first) & (experts < offloaded.last)])
    for run in np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1):
        if run.size:
            yield ShardRange(offloaded.layer, int(run[0]), int(run[-1]) + 1)
