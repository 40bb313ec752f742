"""Whole-region staging on a CUDA device: the copy engine works one layer ahead of the experts (section V-B).

For forward passes that run outside CUDA graphs: there, Python runs at every MoE layer. Two buffers alternate; a copy
waits for the kernels of the layer before last, which read the same buffer, and the kernels wait for their copy: first
for gate-and-up, then, between the two projections, for down. Events order the streams; the processor never waits.
"""

from __future__ import annotations

from typing import Any

import torch

from vamp.memory.remapper import Remapper
from vamp.memory.spans import N_STAGING_BUFFERS
from vamp.staging.cuda.copier import CudaCopier
from vamp.staging.cuda.routed import CudaRouted


class CudaWholeRegion:
    """A `Stager`. Forward passes that no step announced (warm-up, capture) get routed staging instead."""

    def __init__(self, remapper: Remapper, copier: CudaCopier, routed: CudaRouted, device: int) -> None:
        self._remapper, self._copier, self._routed, self._device = remapper, copier, routed, device
        self._stream = torch.cuda.Stream(device)
        n_tensors = len(remapper.layout.plan.experts.tensor_bytes)
        self._copied = [[torch.cuda.Event() for _ in range(n_tensors)] for _ in range(N_STAGING_BUFFERS)]
        self._read = [torch.cuda.Event() for _ in range(N_STAGING_BUFFERS)]
        self._ahead: set[int] = set()
        self._announced = self._running = False

    def begin_step(self) -> None:
        """Copies start at the first MoE layer, when it is known that this step runs outside a graph."""
        self._announced, self._running = True, False

    def before_experts(self, layer: int, experts: Any) -> None:
        if not self._announced:
            self._routed.before_experts(layer, experts)
            return
        if not self._running:
            self._enter()
        if self._offloads(layer):
            if layer not in self._ahead:
                self._start(layer)
            self._current().wait_event(self._copied[self._buffer(layer)][0])
        self._start_after(layer)

    def before_down(self, layer: int) -> None:
        """Between the projections: return when, in stream order, the down projection may be read."""
        if layer in self._ahead:
            for copied in self._copied[self._buffer(layer)][1:]:
                self._current().wait_event(copied)

    def after_experts(self, layer: int) -> None:
        if layer in self._ahead:
            self.before_down(layer)  # waited for even if the kernel did not say when
            self._ahead.discard(layer)
            self._read[self._buffer(layer)].record(self._current())

    def drain(self) -> None:
        """In stream order: what is launched next runs after all copies."""
        if self._running:
            self._current().wait_stream(self._stream)
        self._ahead.clear()
        self._announced = self._running = False

    def _enter(self) -> None:
        """What was launched before this step may still read either buffer."""
        self._running = True
        for read in self._read:
            read.record(self._current())

    def _start_after(self, layer: int) -> None:
        following = range(layer + 1, self._remapper.layout.plan.experts.n_layers)
        later = next((later for later in following if self._offloads(later)), None)
        if later is None or later in self._ahead:
            return
        if self._offloads(layer) and self._buffer(later) == self._buffer(layer):
            return  # started when its own turn comes
        self._start(later)

    def _start(self, layer: int) -> None:
        buffer, shards = self._buffer(layer), self._remapper.offloaded(layer)
        self._stream.wait_event(self._read[buffer])
        for tensor, copied in enumerate(self._copied[buffer]):
            self._copier.stage_tensor(shards, tensor, self._stream)
            copied.record(self._stream)
        self._ahead.add(layer)

    def _offloads(self, layer: int) -> bool:
        shards = self._remapper.offloaded(layer)
        return shards.first < shards.last

    def _buffer(self, layer: int) -> int:
        return self._remapper.layout.buffer_of(layer)

    def _current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._device)
