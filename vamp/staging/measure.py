"""Copying speed of this host, from the host copies to a staging buffer."""

from __future__ import annotations

import time

from vamp.memory.spans import ShardRange, SpanLayout
from vamp.staging.choose import StagingCosts
from vamp.staging.stager import Copier


def measure_costs(copier: Copier, layout: SpanLayout) -> StagingCosts:
    """A whole region and a single expert, for copiers that are done when `stage` returns."""
    experts = layout.plan.experts
    last = experts.n_layers - 1
    n = layout.staged_shards(last)
    if n == 0:
        return StagingCosts(1.0, 1.0)
    whole = ShardRange(last, experts.n_shards - n, experts.n_shards)
    single = ShardRange(last, experts.n_shards - 1, experts.n_shards)
    return StagingCosts(bulk_bytes_per_s=_bytes_per_s(copier, whole), routed_bytes_per_s=_bytes_per_s(copier, single))


def _bytes_per_s(copier: Copier, shards: ShardRange) -> float:
    copier.stage(shards)  # warms the pages
    started = time.perf_counter()
    n = copier.stage(shards)
    return n / max(time.perf_counter() - started, 1e-9)
