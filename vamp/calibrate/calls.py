"""What the calls of a memory driver cost, whichever driver it is; and host-to-host copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from vamp.calibrate.profile import Call, Copy, spread
from vamp.memory.driver import Access, VmmDriver
from vamp.memory.geometry import MIB

SIZES = (MIB, 6 * MIB, 24 * MIB, 128 * MIB)


def calls(driver: VmmDriver, nbytes: int, repeats: int) -> list[Call]:
    """create, map, set access, unmap and destroy of one handle, after one round that is not counted."""
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[..., Any], *args: Any) -> Any:
        started = time.perf_counter()
        result = work(*args)
        times.setdefault(name, []).append((time.perf_counter() - started) * 1e6)
        return result

    base = driver.reserve(nbytes)
    try:
        for _ in range(repeats + 1):
            handle = timed("create", driver.create, nbytes)
            timed("map", driver.map, handle, base)
            timed("set_access", driver.protect, base, nbytes, Access.READ_WRITE)
            timed("unmap", driver.unmap, base)
            timed("destroy", driver.destroy, handle)
    finally:
        driver.release(base)
    return [Call(call=name, nbytes=nbytes, us=spread(found[1:])) for name, found in times.items()]


def memfd_calls(repeats: int) -> list[Call]:
    """Of the driver for host memory, at its page size and at 2 MiB."""
    from vamp.memory.drivers.memfd import DEFAULT_GRANULARITY, MemfdDriver

    driver = MemfdDriver()
    try:
        return [call for nbytes in (DEFAULT_GRANULARITY, 2 * MIB) for call in calls(driver, nbytes, 8 * repeats)]
    finally:
        driver.close()


def host_copies(repeats: int) -> list[Copy]:
    """Host to host, one thread: what stages experts on a CPU host."""
    source, target = (np.ones(max(SIZES), dtype=np.uint8) for _ in range(2))
    rows = []
    for nbytes in SIZES:
        speeds = []
        for _ in range(repeats + 1):
            started = time.perf_counter()
            np.copyto(target[:nbytes], source[:nbytes])
            speeds.append(nbytes / (time.perf_counter() - started) / 1e9)
        rows.append(Copy(direction="h2h", way="memcpy", nbytes=nbytes, gb_per_s=spread(speeds[1:])))
    return rows
