"""Linux calls that Python's own modules do not offer: mmap at an address, mprotect, munmap, hole punching.

Every function raises OSError with the call's errno.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE = 0x1, 0x2, 0x10, 0x20, 0x4000
_KEEP_SIZE, _PUNCH_HOLE = 0x1, 0x2
_FAILED = 2 ** (8 * ctypes.sizeof(ctypes.c_void_p)) - 1

_libc = ctypes.CDLL(None, use_errno=True)
_addr, _size, _int, _off = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_long


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_libc, name)
    function.restype, function.argtypes = result, arguments
    return function


_mmap = _function("mmap", _addr, _addr, _size, _int, _int, _int, _off)
_munmap = _function("munmap", _int, _addr, _size)
_mprotect = _function("mprotect", _int, _addr, _size, _int)
_fallocate = _function("fallocate", _int, _int, _int, _off, _off)


def _check(failed: bool) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def mmap(address: int, nbytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
    """The address of the new mapping."""
    result = _mmap(address or None, nbytes, prot, flags, fd, offset)
    _check(result == _FAILED)
    return int(result)


def munmap(address: int, nbytes: int) -> None:
    _check(_munmap(address, nbytes) != 0)


def mprotect(address: int, nbytes: int, prot: int) -> None:
    _check(_mprotect(address, nbytes, prot) != 0)


def punch_hole(fd: int, offset: int, nbytes: int) -> None:
    """Give the file's pages back to the system; the file keeps its size."""
    _check(_fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, nbytes) != 0)
