"""The driver for a CUDA device: its virtual memory management, in the primary context that torch uses.

Everything is created once; a remap then only maps and unmaps handles, whose cost is per handle and not per byte.
cuMemUnmap does not wait for a busy stream: the caller waits for kernels that may read an address before it calls
`unmap`. The driver itself waits only for the bytes that it set with `fill`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vamp.errors import ConfigError, OutOfPagesError
from vamp.memory.driver import Access, Guard, Handle
from vamp.memory.drivers.book import AddressBook, Range
from vamp.memory.drivers.libcuda import checked, cu
from vamp.memory.region import Region, check_shape

_FLAGS = {
    Access.NONE: cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE,
    Access.READ: cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ,
    Access.READ_WRITE: cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
}


class CudaDriver:
    """A `VmmDriver`. One thread, on which torch has this device current.

    Attributes:
        granularity: bytes, a power of two and a multiple of the device's own (2 MiB).
        device: the device's number as torch counts.
    """

    def __init__(self, granularity: int = 2 * 2**20, device: int = 0) -> None:
        """Raises ConfigError: the device cannot map pages of that size."""
        torch.empty(1, device=f"cuda:{device}")  # makes the primary context, and current
        self.device = device
        self._prop = cu.CUmemAllocationProp()
        self._prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self._prop.location.id = device
        smallest = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        least = int(checked("cuMemGetAllocationGranularity", cu.cuMemGetAllocationGranularity(self._prop, smallest)))
        if granularity < 1 or granularity % least or granularity & (granularity - 1):
            raise ConfigError(
                f"vmm_page_bytes is {granularity}; it must be a power of two and a multiple of the device's {least} B"
            )
        self.granularity = granularity
        self._access = {access: self._describe(access) for access in Access}
        self._book = AddressBook(granularity)
        self._filling: torch.cuda.Event | None = None

    @property
    def in_use_bytes(self) -> int:
        """Created and not destroyed."""
        return self._book.in_use_bytes

    @property
    def n_mappings(self) -> int:
        """Handles at addresses, each place counted."""
        return self._book.n_mappings

    # physical memory

    def create(self, nbytes: int) -> Handle:
        self._book.whole("create", nbytes)
        error, made = cu.cuMemCreate(nbytes, self._prop, 0)
        if error == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            free, total = torch.cuda.mem_get_info(self.device)
            todo = "lower gpu_memory_utilization or the ratio"
            limit = f"{free} of {total} B"
            raise OutOfPagesError.of("create", "no device memory left", value=f"{nbytes} B", limit=limit, todo=todo)
        handle = Handle(int(checked("create", (error, made), f"{nbytes} B")))
        self._book.add_handle(handle, nbytes)
        return handle

    def destroy(self, handle: Handle) -> None:
        nbytes = self._book.may_destroy(handle)
        checked("destroy", cu.cuMemRelease(int(handle)), f"{nbytes} B")
        self._book.drop_handle(handle)

    # addresses

    def reserve(self, nbytes: int, guard: Guard = Guard.HOLE) -> int:
        """Raises ConfigError: another guard than HOLE, which a device does not offer."""
        if guard is not Guard.HOLE:
            raise ConfigError(f"guard {guard.value!r} is not there on CUDA; use 'hole', the default")
        self._book.whole("reserve", nbytes)
        base = int(checked("reserve", cu.cuMemAddressReserve(nbytes, self.granularity, 0, 0), f"{nbytes} B"))
        self._book.add_range(Range(base, nbytes, guard))
        return base

    def release(self, address: int) -> None:
        nbytes = self._book.may_release(address)
        checked("release", cu.cuMemAddressFree(address, nbytes), f"{nbytes} B at {address:#x}")
        self._book.drop_range(address)

    def map(self, handle: Handle, address: int) -> None:
        nbytes = self._book.may_map(handle, address)
        checked("map", cu.cuMemMap(address, nbytes, 0, int(handle), 0), f"{nbytes} B at {address:#x}")
        self._book.add_mapping(handle, address)

    def unmap(self, address: int) -> None:
        _, nbytes = self._book.may_unmap(address)
        self._await_fill()
        checked("unmap", cu.cuMemUnmap(address, nbytes), f"{nbytes} B at {address:#x}")
        self._book.drop_mapping(address)

    def protect(self, address: int, nbytes: int, access: Access) -> None:
        self._book.may_protect(address, nbytes)
        result = cu.cuMemSetAccess(address, nbytes, [self._access[access]], 1)
        checked("protect", result, f"{nbytes} B at {address:#x}")

    def _describe(self, access: Access) -> Any:
        wanted = cu.CUmemAccessDesc()
        wanted.location = self._prop.location
        wanted.flags = _FLAGS[access]
        return wanted

    # bytes

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """On torch's current stream: kernels launched there later see the bytes, the call does not wait."""
        stream, what = torch.cuda.current_stream(self.device), f"{nbytes} B at {address:#x}"
        while nbytes:  # one call may not cross from one reserved range into the next
            part = min(nbytes, self._book.room(address) or nbytes)
            checked("fill", cu.cuMemsetD8Async(address, byte, part, stream.cuda_stream), what)
            address, nbytes = address + part, nbytes - part
        self._filling = self._filling or torch.cuda.Event()
        self._filling.record(stream)

    def _await_fill(self) -> None:
        if self._filling is not None:
            self._filling.synchronize()
            self._filling = None

    def tensor(self, region: Region, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
        """A view that owns nothing. The region's first page must be mapped: torch asks the driver whose it is."""
        check_shape(region.nbytes, dtype, shape)
        raw = torch.as_tensor(_Bytes(region), device=f"cuda:{self.device}")
        return raw.view(dtype).view(*shape)


class _Bytes:
    """A region as torch's array interface wants it."""

    def __init__(self, region: Region) -> None:
        self.__cuda_array_interface__ = {
            "shape": (region.nbytes,),
            "typestr": "|u1",
            "data": (region.address, False),
            "version": 3,
        }
