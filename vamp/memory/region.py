"""A piece of address space, and host views of it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vamp.errors import AddressError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes [address, address + nbytes). Says nothing about what is mapped there."""

    address: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.address + self.nbytes

    def part(self, start: int, nbytes: int) -> Region:
        """`nbytes` bytes from `start` on.

        Raises:
            AddressError: they are not inside this region.
        """
        if start < 0 or nbytes < 0 or start + nbytes > self.nbytes:
            raise AddressError.of(
                "region",
                "part outside the region",
                value=f"bytes {start} to {start + nbytes}",
                limit=f"{self.nbytes} B",
                todo="ask for less",
            )
        return Region(self.address + start, nbytes)


def bytes_at(region: Region) -> NDArray[np.uint8]:
    """A numpy view of host addresses. Nothing is read yet; touching a hole later ends the process."""
    raw = (ctypes.c_uint8 * region.nbytes).from_address(region.address)
    return np.ctypeslib.as_array(raw)


def check_shape(nbytes: int, dtype: torch.dtype, shape: Sequence[int]) -> None:
    """A view of this type and shape covers exactly that many bytes.

    Raises:
        AddressError: it does not.
    """
    wanted = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if wanted != nbytes or nbytes == 0:
        raise AddressError.of(
            "tensor",
            f"{dtype} of shape {tuple(shape)} does not fit the region",
            value=f"{wanted} B",
            limit=f"exactly {nbytes} B, more than 0",
            todo="correct the shape",
        )


def tensor_at(address: int, nbytes: int, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """A torch view of host addresses, without a copy and without touching them.

    Raises:
        AddressError: dtype and shape do not make up `nbytes`.
    """
    import torch

    check_shape(nbytes, dtype, shape)
    raw = (ctypes.c_uint8 * nbytes).from_address(address)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).view(*shape)
