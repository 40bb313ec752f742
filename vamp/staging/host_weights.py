"""Host copies of the experts that may be offloaded: taken once, read ever after.

Weights never change while serving, so offloading copies nothing out: the pages go, the host copy stays.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from vamp.errors import GeometryError, InvariantError
from vamp.memory.addresses import Addresses
from vamp.memory.region import Region, bytes_at
from vamp.memory.spans import ShardRange, SpanLayout


class HostWeights:
    """Of every MoE layer the last shards, as many as a staging buffer holds; bytes as the kernel reads them."""

    def __init__(self, layout: SpanLayout, memory: NDArray[np.uint8] | None = None) -> None:
        """Args: memory: where the copies go, `host_bytes(layout)` long; None takes ordinary memory."""
        self._layout = layout
        self._memory = memory
        self._used = 0
        self._kept: dict[tuple[int, int], NDArray[np.uint8]] = {}

    def take(self, layer: int, tensor: int, weights: NDArray[np.uint8]) -> None:
        """Copy what may be offloaded out of one weight tensor.

        Args:
            weights: all shards of the tensor, flat.

        Raises:
            GeometryError: it has not the bytes that the plan says.
        """
        kept = self.room(layer, tensor, weights.nbytes)
        if kept.nbytes:
            np.copyto(kept, weights[-kept.nbytes :])

    def room(self, layer: int, tensor: int, nbytes: int) -> NDArray[np.uint8]:
        """Where the copy of a weight tensor's last shards belongs, for the caller to fill; empty if none are kept.

        Args:
            nbytes: of all shards of the tensor.

        Raises:
            GeometryError: not the bytes that the plan says.
        """
        experts = self._layout.plan.experts
        size = experts.tensor_bytes[tensor]
        if nbytes != experts.n_shards * size:
            raise GeometryError(
                f"weight tensor {tensor} of MoE layer {layer} has {nbytes} B; {experts.n_shards} experts of "
                f"{size} B were expected: this model or its quantization is not supported"
            )
        n = self._layout.staged_shards(layer) * size
        if n == 0:
            return np.empty(0, np.uint8)
        if (layer, tensor) not in self._kept:
            start, self._used = self._used, self._used + n
            self._kept[layer, tensor] = (
                np.empty(n, np.uint8) if self._memory is None else self._memory[start : start + n]
            )
        return self._kept[layer, tensor]

    def shards(self, layer: int, tensor: int, first: int, last: int) -> NDArray[np.uint8]:
        """Bytes of shards [first, last): a view, not to be written.

        Raises:
            InvariantError: no copy of them was kept.
        """
        experts = self._layout.plan.experts
        start = experts.n_shards - self._layout.staged_shards(layer)
        if not start <= first <= last <= experts.n_shards or (layer, tensor) not in self._kept:
            raise InvariantError(f"no host copy of shards {first} to {last} of MoE layer {layer}; kept from {start} on")
        size = experts.tensor_bytes[tensor]
        return self._kept[layer, tensor][(first - start) * size : (last - start) * size]

    @property
    def nbytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept.values())

    def checksum(self) -> int:
        """CRC-32 over the CRC-32 of every copy; constant for life."""
        with ThreadPoolExecutor() as threads:
            parts = threads.map(lambda key: zlib.crc32(self._kept[key].data), sorted(self._kept))
            return zlib.crc32(np.fromiter(parts, np.uint32).tobytes())


def host_bytes(layout: SpanLayout) -> int:
    """Bytes of all host copies."""
    experts = layout.plan.experts
    return sum(layout.staged_shards(layer) for layer in range(experts.n_layers)) * experts.shard_bytes


class HostCopier:
    """A `Copier` for memory that the processor can write.

    Attributes:
        staged_bytes: copied into staging buffers so far.
    """

    def __init__(self, host: HostWeights, addresses: Addresses, n_tensors: int) -> None:
        self._host, self._addresses, self._n_tensors = host, addresses, n_tensors
        self.staged_bytes = 0

    def stage(self, shards: ShardRange) -> int:
        n = self._copy(
            (self._addresses.staging(shards.layer, t, shards.first, shards.last), source)
            for t, source in self._sources(shards)
        )
        self.staged_bytes += n
        return n

    def checksum(self) -> int:
        return self._host.checksum()

    def restore(self, shards: ShardRange) -> int:
        return self._copy(
            (self._addresses.expert(shards.layer, t, shards.first, shards.last), source)
            for t, source in self._sources(shards)
        )

    def _sources(self, shards: ShardRange) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        for tensor in range(self._n_tensors):
            yield tensor, self._host.shards(shards.layer, tensor, shards.first, shards.last)

    @staticmethod
    def _copy(pairs: Iterator[tuple[Region, NDArray[np.uint8]]]) -> int:
        n = 0
        for region, source in pairs:
            np.copyto(bytes_at(region), source)  # without the interpreter's lock
            n += source.nbytes
        return n
