"""What copying and remapping cost on this device: TP2-rank-wide layers, no vLLM."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from vamp.calibrate.rig import Rig
from vamp.memory.spans import ShardRange
from vamp.staging.cuda.graph_nodes import NodeSwitch
from vamp.staging.cuda.kernel import NAME
from vamp.staging.cuda.measure import event_s

LAYERS = 47
"""Launches per graph in `idle_us`: the layers of Qwen3-Next-80B that may give up experts."""
REPEATS = 9


def event_ms(work: Callable[[], Any]) -> float:
    return event_s(work, REPEATS) * 1e3


def bulk_gb_per_s(rig: Rig, layer: int) -> float:
    """The whole offloaded region of a layer, by the copy engine."""
    shards = rig.remapper.offloaded(layer)
    nbytes = (shards.last - shards.first) * rig.remapper.layout.plan.experts.shard_bytes
    return nbytes / event_ms(lambda: rig.copier.stage(shards)) / 1e6


def routed_rows(rig: Rig, layer: int) -> list[dict[str, float]]:
    """Time to stage 1 to all offloaded experts, and how far that is above bytes / bandwidth of the copy engine."""
    shards, size = rig.remapper.offloaded(layer), rig.remapper.layout.plan.experts.shard_bytes
    n_offloaded = shards.last - shards.first
    bulk = bulk_gb_per_s(rig, layer)
    rows = []
    for n in sorted({n for n in (1, 2, 4, 8, 16, 32, 64, n_offloaded) if n <= n_offloaded}):
        ids = (shards.first + torch.randperm(n_offloaded, device="cuda")[:n]).to(torch.int32)[None]
        ms = event_ms(lambda ids=ids: rig.routed.before_experts(layer, ids))  # type: ignore[misc]
        gb_per_s = n * size / ms / 1e6
        rows.append({"experts": n, "us": ms * 1e3, "gb_per_s": gb_per_s, "over_bulk": bulk / gb_per_s})
    return rows


def idle_us(rig: Rig, layer: int, n_ids: int, enabled: bool = True) -> float:
    """A launch in a CUDA graph while nothing is offloaded, microseconds: an empty kernel, or a disabled one.

    Args:
        enabled: False switches the graph's nodes off.
    """
    ids = torch.zeros((n_ids, 1), device="cuda", dtype=torch.int32)
    rig.routed.before_experts(layer, ids)
    torch.cuda.synchronize()
    switch = NodeSwitch(NAME)
    with switch.capturing():
        graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAYERS):
            rig.routed.before_experts(layer, ids)
    switch.enabled = enabled
    return event_ms(graph.replay) * 1e3 / LAYERS


def remap_ms(rig: Rig, groups: int) -> dict[str, float]:
    """Medians of `remap_times_ms`."""
    return {name: statistics.median(times) for name, times in remap_times_ms(rig, groups, REPEATS).items()}


def remap_times_ms(rig: Rig, groups: int, repeats: int) -> dict[str, list[float]]:
    """Growing by that many groups ("grow") and giving them back ("restore"), milliseconds; the stream is idle."""
    rows: dict[str, list[float]] = {"grow": [], "restore": []}
    for _ in range(repeats):
        for name, target in (("grow", groups), ("restore", 0)):
            torch.cuda.synchronize()
            started = time.perf_counter()
            rig.remap(target)
            torch.cuda.synchronize()
            rows[name].append((time.perf_counter() - started) * 1e3)
    return rows


def all_costs(rig: Rig) -> dict[str, Any]:
    plan = rig.remapper.layout.plan
    layer = plan.experts.resident_layers
    result: dict[str, Any] = {"idle_us": {n: idle_us(rig, layer, n) for n in (10, 640, 1280)}}
    result["disabled_us"] = idle_us(rig, layer, 10, enabled=False)
    result["remap_ms"] = {n: remap_ms(rig, n) for n in (4, 16, plan.limit_groups)}
    rig.remap(plan.limit_groups)
    result["bulk_gb_per_s"] = bulk_gb_per_s(rig, layer)
    result["routed"] = routed_rows(rig, layer)
    shards = rig.remapper.offloaded(layer)
    single = ShardRange(layer, shards.last - 1, shards.last)
    result["bulk_one_expert_us"] = event_ms(lambda: rig.copier.stage(single)) * 1e3
    return result
