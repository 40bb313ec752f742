"""What a driver must remember to keep the rules of `VmmDriver`: ranges, handles, and what is mapped where.

No system calls. A driver asks `may_...` before its call, which raises AddressError if a rule is broken, and notes the
call after it succeeded, so that a call that failed leaves no trace here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field

from vamp.errors import AddressError
from vamp.memory.driver import Guard, Handle


@dataclass(slots=True)
class Range:
    """One reserved range; `starts` are the sorted keys of `mapped`."""

    base: int
    nbytes: int
    guard: Guard
    starts: list[int] = field(default_factory=list)
    mapped: dict[int, Handle] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.base + self.nbytes


class AddressBook:
    """Attributes:
    in_use_bytes: of all handles.
    n_mappings: of all handles at all addresses.
    """

    def __init__(self, granularity: int) -> None:
        self.granularity = granularity
        self.in_use_bytes = 0
        self.n_mappings = 0
        self._sizes: dict[Handle, int] = {}
        self._n_mapped: dict[Handle, int] = {}
        self._ranges: dict[int, Range] = {}
        self._bases: list[int] = []

    # handles

    def add_handle(self, handle: Handle, nbytes: int) -> None:
        self._sizes[handle] = nbytes
        self._n_mapped[handle] = 0
        self.in_use_bytes += nbytes

    def size(self, call: str, handle: Handle) -> int:
        if handle not in self._sizes:
            raise AddressError.of(
                call, "unknown handle", value=handle, limit="handles of this driver", todo="create it first"
            )
        return self._sizes[handle]

    def may_destroy(self, handle: Handle) -> int:
        """Its size."""
        nbytes = self.size("destroy", handle)
        if self._n_mapped[handle]:
            raise AddressError.of(
                "destroy", "handle in use", value=f"{self._n_mapped[handle]} mappings", limit=0, todo="unmap first"
            )
        return nbytes

    def drop_handle(self, handle: Handle) -> None:
        self.in_use_bytes -= self._sizes.pop(handle)
        del self._n_mapped[handle]

    # ranges

    def whole(self, call: str, nbytes: int) -> None:
        """A size is a whole number of pages."""
        if nbytes < 1 or nbytes % self.granularity:
            raise AddressError.of(
                call,
                "not a whole number of pages",
                value=f"{nbytes} B",
                limit=f"multiples of {self.granularity} B, at least one",
                todo="round up",
            )

    def add_range(self, new: Range) -> None:
        self._ranges[new.base] = new
        insort(self._bases, new.base)

    def room(self, address: int) -> int:
        """Bytes from an address, which need not be aligned, to the end of its range; 0 outside all ranges."""
        i = bisect_right(self._bases, address) - 1
        return max(0, self._ranges[self._bases[i]].end - address) if i >= 0 else 0

    def may_release(self, address: int) -> int:
        """The range's bytes."""
        found = self._range("release", address)
        if address != found.base or found.mapped:
            raise AddressError.of(
                "release",
                "not the start of an empty range",
                value=f"{address:#x}, {len(found.mapped)} mappings",
                limit=f"{found.base:#x}, none",
                todo="unmap first and release what `reserve` returned",
            )
        return found.nbytes

    def drop_range(self, address: int) -> None:
        del self._ranges[address]
        self._bases.remove(address)

    def _range(self, call: str, address: int) -> Range:
        i = bisect_right(self._bases, address) - 1
        if i >= 0:
            found = self._ranges[self._bases[i]]
            if address < found.end and address % self.granularity == 0:
                return found
        raise AddressError.of(
            call,
            "address in no reserved range, or misaligned",
            value=f"{address:#x}",
            limit=f"{len(self._bases)} ranges, multiples of {self.granularity} B",
            todo="reserve it first",
        )

    # mappings

    def may_map(self, handle: Handle, address: int) -> int:
        """Bytes that the mapping will take."""
        nbytes = self.size("map", handle)
        found = self._range("map", address)
        i = bisect_left(found.starts, address)
        room_end = found.starts[i] if i < len(found.starts) else found.end
        room_start = found.base
        if i:
            before = found.starts[i - 1]
            room_start = before + self._sizes[found.mapped[before]]
        if address < room_start or address + nbytes > room_end:
            raise AddressError.of(
                "map",
                "handle does not fit where nothing is mapped",
                value=f"{nbytes} B at {address:#x}",
                limit=f"{room_start:#x} to {room_end:#x}",
                todo="unmap what is there first",
            )
        return nbytes

    def add_mapping(self, handle: Handle, address: int) -> None:
        found = self._range("map", address)
        found.mapped[address] = handle
        insort(found.starts, address)
        self._n_mapped[handle] += 1
        self.n_mappings += 1

    def may_unmap(self, address: int) -> tuple[Range, int]:
        """The range, whose guard comes back, and how many bytes."""
        found = self._range("unmap", address)
        if address not in found.mapped:
            raise _not_mapped("unmap", address)
        return found, self._sizes[found.mapped[address]]

    def drop_mapping(self, address: int) -> None:
        found = self._range("unmap", address)
        self._n_mapped[found.mapped.pop(address)] -= 1
        self.n_mappings -= 1
        found.starts.remove(address)

    def may_protect(self, address: int, nbytes: int) -> None:
        """The bytes are exactly one or more whole mappings."""
        found = self._range("protect", address)
        at = address
        while at < address + nbytes and at in found.mapped:
            at += self._sizes[found.mapped[at]]
        if nbytes < 1 or at != address + nbytes:
            raise _not_mapped("protect", at)


def _not_mapped(call: str, address: int) -> AddressError:
    return AddressError.of(
        call, "no mapping starts here", value=f"{address:#x}", limit="whole mappings only", todo="map it first"
    )
