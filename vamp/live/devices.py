"""CUDA devices of this machine, asked of the driver itself: neither torch nor a context is needed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_DRIVER = "libcuda.so.1"
_NAME_BYTES = 128


@dataclass(frozen=True, slots=True)
class Device:
    """`driver_api`: the newest CUDA that the driver speaks, e.g. 13000."""

    name: str
    memory_mib: int
    driver_api: int


def cuda_devices() -> list[Device]:
    """Those that `CUDA_VISIBLE_DEVICES` leaves, in its order; empty without a driver or a device."""
    try:
        cuda = ctypes.CDLL(_DRIVER)
    except OSError:
        return []
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or cuda.cuDriverGetVersion(ctypes.byref(version)):
        return []
    return [_device(cuda, index, version.value) for index in range(count.value)]


def _device(cuda: ctypes.CDLL, index: int, driver_api: int) -> Device:
    handle, memory = ctypes.c_int(0), ctypes.c_size_t(0)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    cuda.cuDeviceGet(ctypes.byref(handle), index)
    cuda.cuDeviceGetName(name, _NAME_BYTES, handle)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    return Device(name.value.decode(), memory.value // 2**20, driver_api)
