"""Host copies of experts in page-locked memory, and the copy engine's way to and from the device.

Everything is ordered by streams: no call waits unless it says so.
"""

from __future__ import annotations

import torch

from vamp.errors import GeometryError
from vamp.memory.addresses import Addresses
from vamp.memory.drivers.libcuda import checked, cu
from vamp.memory.region import Region
from vamp.memory.spans import ShardRange, SpanLayout
from vamp.staging.cuda.pinned import PinnedMemory, near_cpus, pci_bus_id
from vamp.staging.host_weights import HostWeights, host_bytes

_ALIGN_BYTES = 16
"""What the staging kernel loads at once."""


class CudaCopier:
    """A `Copier`. Calls without a stream use torch's current one.

    Attributes:
        weights: the host copies.
        bulk_bytes: staged by the copy engine so far.
    """

    def __init__(self, layout: SpanLayout, device: int) -> None:
        """Raises:
        CapacityError: the host has not enough memory for the copies.
        GeometryError: shards are no multiple of 16 B.
        """
        experts = layout.plan.experts
        if any(size % _ALIGN_BYTES for size in experts.tensor_bytes):
            raise GeometryError(
                f"expert tensors of {experts.tensor_bytes} B per expert; on CUDA they must be multiples of "
                f"{_ALIGN_BYTES} B: serve with --ratio 0"
            )
        self._layout, self._device = layout, device
        self._pinned = PinnedMemory(host_bytes(layout), near_cpus(pci_bus_id(device)))
        self.weights = HostWeights(layout, self._pinned.array)
        self.addresses: Addresses | None = None
        self.bulk_bytes = 0

    def take(self, layer: int, tensor: int, region: Region) -> None:
        """Copy what may be offloaded out of a weight tensor on the device; `wait` before the copy is read.

        Raises:
            GeometryError: it has not the bytes that the plan says.
        """
        kept = self.weights.room(layer, tensor, region.nbytes)
        if kept.nbytes:
            source, stream = region.end - kept.nbytes, torch.cuda.current_stream(self._device).cuda_stream
            result = cu.cuMemcpyDtoHAsync(kept.ctypes.data, source, kept.nbytes, stream)
            checked("copy", result, f"{kept.nbytes} B from {source:#x}")

    def wait(self) -> None:
        """Until everything on the current stream is done."""
        torch.cuda.current_stream(self._device).synchronize()

    def kept_from(self, layer: int) -> int:
        """First shard with a host copy."""
        return self._layout.plan.experts.n_shards - self._layout.staged_shards(layer)

    def source(self, layer: int, tensor: int) -> int:
        """Where kernels see the host copy of shard `kept_from(layer)`."""
        n_shards = self._layout.plan.experts.n_shards
        return self._pinned.device(self.weights.shards(layer, tensor, self.kept_from(layer), n_shards))

    @property
    def staged_bytes(self) -> int:
        return self.bulk_bytes

    def stage(self, shards: ShardRange) -> int:
        stream = torch.cuda.current_stream(self._device)
        n_tensors = len(self._layout.plan.experts.tensor_bytes)
        return sum(self.stage_tensor(shards, tensor, stream) for tensor in range(n_tensors))

    def stage_tensor(self, shards: ShardRange, tensor: int, stream: torch.cuda.Stream) -> int:
        """One weight tensor's part of `stage`; the bytes copied."""
        target = self._places().staging(shards.layer, tensor, shards.first, shards.last)
        n = self._copy(shards, tensor, target, stream)
        self.bulk_bytes += n
        return n

    def restore(self, shards: ShardRange) -> int:
        stream = torch.cuda.current_stream(self._device)
        n = 0
        for tensor in range(len(self._layout.plan.experts.tensor_bytes)):
            target = self._places().expert(shards.layer, tensor, shards.first, shards.last)
            n += self._copy(shards, tensor, target, stream)
        return n

    def _copy(self, shards: ShardRange, tensor: int, target: Region, stream: torch.cuda.Stream) -> int:
        source = self.weights.shards(shards.layer, tensor, shards.first, shards.last)
        result = cu.cuMemcpyHtoDAsync(target.address, source.ctypes.data, source.nbytes, stream.cuda_stream)
        checked("copy", result, f"{source.nbytes} B to {target.address:#x}")
        return source.nbytes

    def _places(self) -> Addresses:
        assert self.addresses is not None, "set once the remapper is built"
        return self.addresses

    def checksum(self) -> int:
        return self.weights.checksum()

    def close(self) -> None:
        """Give up the page lock. Nothing may be in flight."""
        self._pinned.close()
