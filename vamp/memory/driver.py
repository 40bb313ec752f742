"""What the memory half asks of a virtual-memory driver, whichever memory it drives.

Addresses are reserved once and physical memory is created once; afterwards handles only change places. Both
drivers keep the same rules, so that a program which is right on the CPU is right on a GPU:

| call | CUDA | Linux (`drivers.memfd`) |
|---|---|---|
| `reserve` | cuMemAddressReserve (and cuMemMap of a guard page) | mmap(PROT_NONE), anonymous |
| `release` | cuMemAddressFree | munmap |
| `create` | cuMemCreate | a part of one big memfd: ftruncate, fallocate |
| `destroy` | cuMemRelease | fallocate(PUNCH_HOLE) |
| `map` | cuMemMap, offset 0, the whole handle | mmap(MAP_FIXED, MAP_SHARED, PROT_NONE) |
| `protect` | cuMemSetAccess | mprotect |
| `unmap` | cuMemUnmap | mmap(PROT_NONE, MAP_FIXED) over it |
| `fill` | cuMemsetD8 | memset |

The cost on CUDA is per handle, whatever its size, so handles may be larger than a page. A call that fails
raises `DriverError` and changes nothing. No kernel that reads the addresses may run during a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NewType, Protocol

from vamp.memory.region import Region

if TYPE_CHECKING:
    import torch

Handle = NewType("Handle", int)
"""Physical memory of a fixed size, mapped at any number of addresses."""


class Guard(Enum):
    """What a reserved address without a handle does when it is read; writing to it always faults.

    HOLE finds stray reads. The other two hide them, POISON loudly: its bytes are 0xFF, NaN in bf16 and fp32.
    """

    HOLE = "hole"
    POISON = "poison"
    ZERO = "zero"


class Access(Enum):
    NONE = "none"
    READ = "read"
    READ_WRITE = "read_write"


class VmmDriver(Protocol):
    """Sizes and addresses are bytes and multiples of `granularity`, in every call but `fill` and `tensor`.

    Every call may raise DriverError; AddressError where the arguments break a rule that is written here.
    """

    @property
    def granularity(self) -> int:
        """Smallest unit of mapping, bytes."""

    def reserve(self, nbytes: int, guard: Guard = Guard.HOLE) -> int:
        """A fresh address range without physical memory; its start is a multiple of `granularity`."""

    def release(self, address: int) -> None:
        """Give back the range that `reserve` returned; nothing may be mapped in it."""

    def create(self, nbytes: int) -> Handle:
        """Physical memory, all of it there when the call returns; zero on Linux, undefined contents on CUDA.

        Raises:
            OutOfPagesError: there is not that much left.
        """

    def destroy(self, handle: Handle) -> None:
        """Give the memory back; it must be mapped nowhere."""

    def map(self, handle: Handle, address: int) -> None:
        """Put the whole handle at addresses of one reserved range where nothing is mapped.

        The handle may be mapped elsewhere at the same time (an alias). Access is NONE until `protect`.
        """

    def unmap(self, address: int) -> None:
        """Take away the handle mapped at exactly this address; the range's guard is back."""

    def protect(self, address: int, nbytes: int, access: Access) -> None:
        """Set the access of one or more whole mappings that lie side by side."""

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Set mapped, writable bytes."""

    def tensor(self, region: Region, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
        """A tensor over these addresses, mapped or not; it owns nothing and is void after `release`."""
