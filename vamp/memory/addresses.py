"""Where tensors, shards and pages are in the address space. Reserved once; nothing here ever moves."""

from __future__ import annotations

from contextlib import ExitStack

from vamp.errors import AddressError
from vamp.memory.driver import Guard, VmmDriver
from vamp.memory.region import Region
from vamp.memory.spans import ExpertSpan, KvSpan, Place, Span, SpanLayout, StagingSpan


class Addresses:
    """MoE layers are counted from 0, resident ones included; tensors as in `ExpertGeometry.tensor_bytes`."""

    def __init__(self, layout: SpanLayout, driver: VmmDriver, guard: Guard, resources: ExitStack) -> None:
        """Reserve every span; `resources` releases them.

        Raises:
            DriverError: a range could not be reserved.
        """
        self._layout = layout
        self._base: dict[Span, int] = {}
        for span, n in layout.spans():
            self._base[span] = base = driver.reserve(n * layout.page_bytes, guard)
            resources.callback(driver.release, base)

    def expert(self, layer: int, tensor: int, first: int = 0, last: int | None = None) -> Region:
        """Where kernels read shards [first, last) of a weight tensor, whatever backs them; all shards by default."""
        base = self._base[ExpertSpan(layer, tensor)] + self._layout.tensor_start(tensor)
        return self._shards(Region(base, self._bytes(tensor)), tensor, first, last)

    def staging(self, layer: int, tensor: int, first: int, last: int | None = None) -> Region:
        """Shards [first, last) in the staging buffer that stands in for this layer's offloaded shards.

        Raises:
            AddressError: the buffer does not hold them, or the layer is never offloaded.
        """
        span = StagingSpan(self._layout.buffer_of(layer), tensor)
        missing = self._layout.plan.experts.n_shards - self._layout.staged_shards(layer)
        if first < missing:
            raise AddressError.of(
                "staging",
                f"shards of layer {layer} not in the buffer",
                value=first,
                limit=f"from {missing} on",
                todo="copy offloaded shards only",
            )
        size = self._layout.plan.experts.tensor_bytes[tensor]
        return self._shards(Region(self._base[span] - missing * size, self._bytes(tensor)), tensor, first, last)

    def kv(self, tensor: int) -> Region:
        """One KV tensor at its virtual maximum, `PoolPlan.max_blk` blocks; pages back only the current capacity."""
        plan = self._layout.plan
        return Region(self._base[KvSpan(tensor)], plan.max_blk * plan.kv.page_bytes)

    def pages(self, place: Place, n_pages: int) -> Region:
        """`n_pages` pages from that place on."""
        page = self._layout.page_bytes
        return Region(self._base[place.span] + place.page * page, n_pages * page)

    def _bytes(self, tensor: int) -> int:
        return self._layout.plan.experts.n_shards * self._layout.plan.experts.tensor_bytes[tensor]

    def _shards(self, whole: Region, tensor: int, first: int, last: int | None) -> Region:
        experts = self._layout.plan.experts
        size = experts.tensor_bytes[tensor]
        end = experts.n_shards if last is None else last
        return whole.part(first * size, (end - first) * size)
