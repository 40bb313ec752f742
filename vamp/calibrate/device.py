"""Copies, driver calls and interference on a CUDA device, without vLLM. Imports torch and CUDA's driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vamp.calibrate import memory
from vamp.calibrate import rig as rigs
from vamp.calibrate.calls import calls
from vamp.calibrate.profile import Call, Copy, Interference, Remap, spread
from vamp.memory.drivers.cuda import CudaDriver
from vamp.memory.drivers.libcuda import checked, cu
from vamp.memory.geometry import MIB
from vamp.staging.cuda.measure import events_s
from vamp.staging.cuda.pinned import PinnedMemory, near_cpus, pci_bus_id

SIZES = (MIB, 6 * MIB, 24 * MIB, 128 * MIB)
HANDLE_SIZES = (2 * MIB, 24 * MIB)
GEMM = 8192
"""Rows and columns of the matrix product."""


@contextmanager
def pinned(nbytes: int, device: int = 0) -> Iterator[PinnedMemory]:
    memory = PinnedMemory(nbytes, near_cpus(pci_bus_id(device)))
    try:
        yield memory
    finally:
        torch.cuda.synchronize()
        memory.close()


def engine_copies(repeats: int) -> list[Copy]:
    """Both directions, each size, by the copy engine."""
    rows = []
    target = torch.empty(max(SIZES), dtype=torch.uint8, device="cuda")
    with pinned(max(SIZES)) as host:
        for nbytes in SIZES:
            rows += [_copy("h2d", target, host, nbytes, repeats), _copy("d2h", target, host, nbytes, repeats)]
    return rows


def _copy(direction: Any, target: torch.Tensor, host: PinnedMemory, nbytes: int, repeats: int) -> Copy:
    times = events_s(lambda: _start_copy(direction, target, host, nbytes), repeats)
    return Copy(direction=direction, way="engine", nbytes=nbytes, gb_per_s=spread(nbytes / t / 1e9 for t in times))


def _start_copy(direction: str, target: torch.Tensor, host: PinnedMemory, nbytes: int) -> None:
    stream = torch.cuda.current_stream().cuda_stream
    if direction == "h2d":
        checked("copy", cu.cuMemcpyHtoDAsync(target.data_ptr(), host.address, nbytes, stream), f"{nbytes} B")
    else:
        checked("copy", cu.cuMemcpyDtoHAsync(host.address, target.data_ptr(), nbytes, stream), f"{nbytes} B")


def kernel_copies(repeats: int) -> list[Copy]:
    """By the staging kernel: 2, 8 and 43 experts of 3 MiB, as they are selected."""
    with wide_rig() as rig:
        layer, experts = rig.remapper.layout.plan.experts.resident_layers, rig.remapper.layout.plan.experts
        shards = rig.remapper.offloaded(layer)
        rows = []
        for n in (2, 8, 43):
            ids = (shards.first + torch.randperm(shards.last - shards.first)[:n]).to(torch.int32).cuda()[None]
            times = events_s(lambda ids=ids: rig.routed.before_experts(layer, ids), repeats)  # type: ignore[misc]
            nbytes = n * experts.shard_bytes
            speed = spread(nbytes / t / 1e9 for t in times)
            rows.append(Copy(direction="h2d", way="kernel", nbytes=nbytes, gb_per_s=speed))
        return rows


@contextmanager
def wide_rig() -> Iterator[rigs.Rig]:
    """Layers as wide as Qwen3-Next-80B's on one of two ranks, all that the plan allows offloaded."""
    rig = rigs.build(rigs.wide())
    try:
        rig.remap(rig.remapper.layout.plan.limit_groups)
        yield rig
    finally:
        rig.close()


def driver_calls(repeats: int) -> list[Call]:
    """create, map, set access, unmap and destroy of one handle of a page and of an increment."""
    driver = CudaDriver()
    return [call for nbytes in HANDLE_SIZES for call in calls(driver, nbytes, 8 * repeats)]


def remaps(repeats: int) -> list[Remap]:
    """One increment (4 groups), 16 groups, and all that the rig's plan allows."""
    rig = rigs.build(rigs.wide())
    try:
        experts, rows = rig.remapper.layout.plan.experts, []
        for groups in (4, 16, rig.remapper.layout.plan.limit_groups):
            found = {name: spread(times) for name, times in memory.remap_times_ms(rig, groups, repeats).items()}
            pages = groups * experts.pages_per_group
            rows.append(Remap(groups=groups, pages=pages, grow_ms=found["grow"], restore_ms=found["restore"]))
        return rows
    finally:
        rig.close()


def interference(repeats: int) -> list[Interference]:
    """A bf16 matrix product while another stream copies from the host by either way."""
    a, b = (torch.randn(GEMM, GEMM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    target, side = torch.empty(max(SIZES), dtype=torch.uint8, device="cuda"), torch.cuda.Stream()
    rows = []
    with pinned(max(SIZES)) as host, wide_rig() as rig:
        layer = rig.remapper.layout.plan.experts.resident_layers
        shards = rig.remapper.offloaded(layer)
        ids = torch.arange(shards.first, shards.last, device="cuda", dtype=torch.int32)[None]
        ways: dict[Any, Callable[[], Any]] = {
            "engine": lambda: _start_copy("h2d", target, host, max(SIZES)),
            "kernel": lambda: rig.routed.before_experts(layer, ids),
        }
        alone = spread(t * 1e3 for t in events_s(lambda: a @ b, repeats))
        for way, copy in ways.items():
            times = [_beside(lambda: a @ b, copy, side) * 1e3 for _ in range(repeats + 1)][1:]
            rows.append(Interference(way=way, alone_ms=alone, beside_ms=spread(times)))
    return rows


def _beside(work: Callable[[], Any], copy: Callable[[], Any], side: torch.cuda.Stream) -> float:
    """Seconds that `work` takes while copies, longer than it, run on another stream."""
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(3):
            copy()
    (seconds,) = events_s(work, 1, warm=False)
    torch.cuda.synchronize()
    return seconds
