"""The driver for Linux host memory: one memfd holds all physical pages, mmap puts them at addresses.

Real memory and real faults: a hole that is read ends the process with SIGSEGV, as a GPU kernel would die with an
illegal address. Mappings are shared, so a forked child would see the same bytes: start workers by spawn, as vLLM does.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vamp.errors import ConfigError, DriverError, OutOfPagesError
from vamp.memory.driver import Access, Guard, Handle
from vamp.memory.drivers import libc
from vamp.memory.drivers.book import AddressBook, Range
from vamp.memory.region import Region, tensor_at

if TYPE_CHECKING:
    import torch

DEFAULT_GRANULARITY = 64 * 2**10
"""More than the hardware's 4 KiB, so that a small model needs hundreds of mappings and not thousands."""

SPARE_MAPPINGS = 8192
"""Left of vm.max_map_count for guards and the rest of the process (libraries, heap). At the limit itself unmapping may
fail as well, so that a remap could not be undone: `map` refuses before that."""

_POISON_BYTES = 2**20
_ANYWHERE = libc.MAP_PRIVATE | libc.MAP_ANONYMOUS | libc.MAP_NORESERVE
_PROT = {
    Access.NONE: libc.PROT_NONE,
    Access.READ: libc.PROT_READ,
    Access.READ_WRITE: libc.PROT_READ | libc.PROT_WRITE,
}


class MemfdDriver:
    """A `VmmDriver`.

    Attributes:
        granularity: bytes, a multiple of the system's page.
        capacity_bytes: what `create` may hand out in all, like the size of a GPU's memory; None is what the machine
            has available.
    """

    def __init__(self, granularity: int = DEFAULT_GRANULARITY, capacity_bytes: int | None = None) -> None:
        """Raises ConfigError: the granularity is no multiple of the system's page."""
        system = os.sysconf("SC_PAGE_SIZE")
        if granularity < 1 or granularity % system:
            raise ConfigError(
                f"memory granularity is {granularity} B; it must be a multiple of the system's {system} B"
            )
        self.granularity = granularity
        self.capacity_bytes = capacity_bytes
        self._book = AddressBook(granularity)
        self._fd = os.memfd_create("vamp-pages")
        self._file_bytes = 0
        self._poison_fd = -1
        self._most_mappings = _max_map_count() - SPARE_MAPPINGS
        self._reserved: dict[int, Region] = {}  # what mmap returned for each range

    @property
    def in_use_bytes(self) -> int:
        """Created and not destroyed."""
        return self._book.in_use_bytes

    def physical_bytes(self) -> int:
        """Memory that the system really holds for this driver's pages."""
        return os.fstat(self._fd).st_blocks * 512

    # physical memory: a handle's number is its offset in the file

    def create(self, nbytes: int) -> Handle:
        self._book.whole("create", nbytes)
        left = self._left_bytes()
        if nbytes > left:
            raise _out_of_pages("no memory left", nbytes, f"{left} B")
        offset = self._file_bytes
        try:
            os.posix_fallocate(self._fd, offset, nbytes)  # now, not with a SIGBUS at the first touch
        except OSError as err:
            os.ftruncate(self._fd, offset)
            raise _out_of_pages(f"{err.strerror}", nbytes, "the system's, see ulimit -f and free") from err
        self._file_bytes += nbytes
        self._book.add_handle(Handle(offset), nbytes)
        return Handle(offset)

    def destroy(self, handle: Handle) -> None:
        nbytes = self._book.may_destroy(handle)
        with _named("destroy", nbytes):
            libc.punch_hole(self._fd, int(handle), nbytes)
        self._book.drop_handle(handle)

    def _left_bytes(self) -> int:
        if self.capacity_bytes is not None:
            return self.capacity_bytes - self.in_use_bytes
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))

    # addresses

    def reserve(self, nbytes: int, guard: Guard = Guard.HOLE) -> int:
        self._book.whole("reserve", nbytes)
        raw_bytes = nbytes + self.granularity  # room to align the start
        with _named("reserve", raw_bytes):
            raw = Region(libc.mmap(0, raw_bytes, libc.PROT_NONE, _ANYWHERE), raw_bytes)
        base = -(-raw.address // self.granularity) * self.granularity
        try:
            self._put_guard("reserve", guard, base, nbytes)
        except DriverError:
            libc.munmap(raw.address, raw.nbytes)
            raise
        self._reserved[base] = raw
        self._book.add_range(Range(base, nbytes, guard))
        return base

    def release(self, address: int) -> None:
        self._book.may_release(address)
        raw = self._reserved[address]
        with _named("release", raw.nbytes):
            libc.munmap(raw.address, raw.nbytes)
        del self._reserved[address]
        self._book.drop_range(address)

    def map(self, handle: Handle, address: int) -> None:
        nbytes = self._book.may_map(handle, address)
        if self._book.n_mappings >= self._most_mappings:
            raise _too_many_mappings("map", self._book.n_mappings, self._most_mappings)
        with _named("map", nbytes):
            flags = libc.MAP_SHARED | libc.MAP_FIXED
            libc.mmap(address, nbytes, libc.PROT_NONE, flags, self._fd, int(handle))
        self._book.add_mapping(handle, address)

    def unmap(self, address: int) -> None:
        found, nbytes = self._book.may_unmap(address)
        self._put_guard("unmap", found.guard, address, nbytes)
        self._book.drop_mapping(address)

    def protect(self, address: int, nbytes: int, access: Access) -> None:
        self._book.may_protect(address, nbytes)
        with _named("protect", nbytes):
            libc.mprotect(address, nbytes, _PROT[access])

    def _put_guard(self, call: str, guard: Guard, address: int, nbytes: int) -> None:
        with _named(call, nbytes):
            if guard is not Guard.POISON:
                prot = libc.PROT_READ if guard is Guard.ZERO else libc.PROT_NONE
                libc.mmap(address, nbytes, prot, _ANYWHERE | libc.MAP_FIXED)
                return
            flags = libc.MAP_SHARED | libc.MAP_FIXED
            for start in range(address, address + nbytes, _POISON_BYTES):
                part = min(_POISON_BYTES, address + nbytes - start)
                libc.mmap(start, part, libc.PROT_READ, flags, self._poison())

    def _poison(self) -> int:
        """A small file of 0xFF that is mapped again and again."""
        if self._poison_fd < 0:
            self._poison_fd = os.memfd_create("vamp-poison")
            os.write(self._poison_fd, b"\xff" * _POISON_BYTES)
        return self._poison_fd

    # bytes

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        ctypes.memset(address, byte, nbytes)

    def tensor(self, region: Region, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
        return tensor_at(region.address, region.nbytes, dtype, shape)

    def close(self) -> None:
        """Unmap and give back everything; for the end. Views over the ranges are void from here on."""
        for raw in self._reserved.values():
            libc.munmap(raw.address, raw.nbytes)
        for fd in (self._fd, self._poison_fd):
            if fd >= 0:
                os.close(fd)
        self._reserved = {}
        self._fd = self._poison_fd = -1
        self._book = AddressBook(self.granularity)


def _out_of_pages(problem: str, nbytes: int, limit: str) -> OutOfPagesError:
    todo = "ask for a smaller pool"
    return OutOfPagesError.of("create", problem, value=f"{nbytes} B", limit=limit, todo=todo)


def _max_map_count() -> int:
    return int(Path("/proc/sys/vm/max_map_count").read_text())


def _too_many_mappings(call: str, n: int, limit: int) -> DriverError:
    todo = f"use larger pages or raise vm.max_map_count, which is {_max_map_count()}"
    return DriverError.of(call, "too many mappings", value=n, limit=limit, todo=todo)


@contextmanager
def _named(call: str, nbytes: int) -> Iterator[None]:
    """Turn a system call's OSError into a DriverError that names the limit which was hit."""
    try:
        yield
    except OSError as err:
        with Path("/proc/self/maps").open("rb") as lines:
            n_maps = sum(1 for _ in lines)
        if err.errno == errno.ENOMEM and n_maps >= _max_map_count() - 16:
            raise _too_many_mappings(call, n_maps, _max_map_count()) from err
        value, limit = f"{nbytes} B, errno {err.errno}", "the system's"
        raise DriverError.of(call, f"{err.strerror}", value=value, limit=limit, todo="see ulimit -v and free") from err
