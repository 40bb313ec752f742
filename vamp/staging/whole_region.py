"""The paper's staging: a layer's whole offloaded region, copied while the layer before it computes (section V-B).

Two buffers alternate over the layers. Before layer i's kernel runs, its copy is waited for and layer i+1's is
started, into the buffer that layer i-1 has finished with.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from vamp.errors import InvariantError
from vamp.memory.remapper import Remapper
from vamp.staging.stager import Copier, ExpertIds


class WholeRegion:
    """A `Stager` with one copy thread."""

    def __init__(self, remapper: Remapper, copier: Copier) -> None:
        self._remapper, self._copier = remapper, copier
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vamp-staging")
        self._ahead: dict[int, Future[int]] = {}  # by layer; at most one per buffer
        self._reader: dict[int, int] = {}  # buffer -> layer whose kernel reads it

    def begin_step(self) -> None:
        self._start_after(-1)

    def before_experts(self, layer: int, experts: ExpertIds) -> None:
        if not self._offloads(layer):
            return
        if layer not in self._ahead:  # a forward pass that no step announced
            self._start(layer)
        self._ahead.pop(layer).result()
        self._reader[self._buffer(layer)] = layer
        self._start_after(layer)

    def after_experts(self, layer: int) -> None:
        if self._reader.get(self._buffer(layer)) == layer:
            del self._reader[self._buffer(layer)]

    def drain(self) -> None:
        ahead, self._ahead = self._ahead, {}
        for copy in ahead.values():
            copy.result()

    def _start_after(self, layer: int) -> None:
        following = range(layer + 1, self._remapper.layout.plan.experts.n_layers)
        start = next((later for later in following if self._offloads(later)), None)
        if start is not None and start not in self._ahead:
            self._start(start)

    def _start(self, layer: int) -> None:
        buffer = self._buffer(layer)
        taken = [other for other in self._ahead if self._buffer(other) == buffer]
        if buffer in self._reader or taken:
            raise InvariantError(
                f"staging of MoE layer {layer} would overwrite buffer {buffer}, in use for layer "
                f"{self._reader.get(buffer, *taken)}"
            )
        self._ahead[layer] = self._thread.submit(self._copier.stage, self._remapper.offloaded(layer))

    def _offloads(self, layer: int) -> bool:
        shards = self._remapper.offloaded(layer)
        return shards.first < shards.last

    def _buffer(self, layer: int) -> int:
        return self._remapper.layout.buffer_of(layer)
