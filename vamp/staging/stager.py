"""What a forward pass asks of staging, whichever way the weights travel."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vamp.memory.spans import ShardRange

ExpertIds: TypeAlias = NDArray[np.integer[Any]]
"""Rank-local expert numbers that the router chose, any shape, repeats allowed."""


class Stager(Protocol):
    """Brings a layer's offloaded experts into its staging buffer before its kernel reads them.

    One thread calls, layers in order, `before_experts` and `after_experts` in pairs. Both do nothing for a layer
    whose experts are all resident. The boundary moves only after `drain`.
    """

    def begin_step(self) -> None:
        """A forward pass is about to start."""

    def before_experts(self, layer: int, experts: ExpertIds) -> None:
        """Return when the kernel of this MoE layer may read its experts' addresses.

        Raises:
            InvariantError: the staging buffer is still read by another layer.
        """

    def after_experts(self, layer: int) -> None:
        """The kernel has read them; the buffer may be overwritten."""

    def drain(self) -> None:
        """Return when nothing is being copied; what was copied ahead is forgotten."""


class Copier(Protocol):
    """Copies expert shards from their host copies."""

    @property
    def staged_bytes(self) -> int:
        """Copied by `stage` so far."""

    def stage(self, shards: ShardRange) -> int:
        """Into the layer's staging buffer; the bytes copied. Callable from any thread."""

    def restore(self, shards: ShardRange) -> int:
        """To the experts' own addresses, after their pages came back; the bytes copied."""

    def checksum(self) -> int:
        """Of the host copies; constant for life."""
