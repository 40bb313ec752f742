"""Copying speed of this device and host: what "auto" staging compares. A few milliseconds at start."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from vamp.memory.driver import VmmDriver
from vamp.memory.remapper import Remapper
from vamp.memory.spans import ShardRange
from vamp.staging.choose import StagingCosts
from vamp.staging.cuda.copier import CudaCopier
from vamp.staging.cuda.routed import CudaRouted

_SELECTED = 8
"""Experts staged at once when routed staging is timed: enough that its start-up does not show."""


def event_s(work: Callable[[], Any], repeats: int = 3) -> float:
    """Median time of `work` on the current stream, after one call that is not counted."""
    return statistics.median(events_s(work, repeats))


def events_s(work: Callable[[], Any], repeats: int, warm: bool = True) -> list[float]:
    """Times of `work` on the current stream.

    Args:
        warm: call it once before, uncounted.
    """
    times: list[float] = []
    for _ in range(repeats + warm):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return times[warm:]


def measure_costs(remapper: Remapper, copier: CudaCopier, routed: CudaRouted, driver: VmmDriver) -> StagingCosts:
    """While nothing is offloaded: experts are overwritten with their own bytes.

    A bulk copy is counted as hidden behind the time that reading one layer's experts from device memory takes: steps
    outside CUDA graphs read nearly all of them.
    """
    experts = remapper.layout.plan.experts
    layer = experts.n_layers - 1
    kept = ShardRange(layer, copier.kept_from(layer), experts.n_shards)
    n_selected = min(_SELECTED, kept.last - kept.first)
    ids = torch.arange(kept.last - n_selected, kept.last, dtype=torch.int32).to(routed.device)[None]
    routed.stage_from([*[experts.n_shards] * layer, kept.first])
    routed_s = event_s(lambda: routed.before_experts(layer, ids))
    routed.follow_boundary()
    bulk_s = event_s(lambda: copier.stage(kept))
    regions = [remapper.addresses.expert(layer, tensor) for tensor in range(len(experts.tensor_bytes))]
    tensors = [driver.tensor(region, torch.int64, (region.nbytes // 8,)) for region in regions]
    read_s = event_s(lambda: [tensor.sum() for tensor in tensors])
    routed.forget_counts()
    copier.bulk_bytes = 0
    return StagingCosts(
        bulk_bytes_per_s=(kept.last - kept.first) * experts.shard_bytes / bulk_s,
        routed_bytes_per_s=n_selected * experts.shard_bytes / routed_s,
        hidden_s=read_s,
    )
