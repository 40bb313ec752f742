"""A real remapper over real pages, with experts whose bytes name their layer, tensor and shard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.memory.helpers import SMALL
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.region import bytes_at
from vamp.memory.remapper import Remapper
from vamp.memory.spans import ShardRange
from vamp.staging.host_weights import HostCopier, HostWeights


@dataclass
class Rank:
    remapper: Remapper
    host: HostWeights
    copier: HostCopier

    def expected(self, layer: int, tensor: int) -> np.ndarray:
        experts = self.remapper.layout.plan.experts
        rng = np.random.default_rng(100 * layer + tensor)
        return rng.integers(0, 256, experts.n_shards * experts.tensor_bytes[tensor], dtype=np.uint8)

    def equal(self, shards: ShardRange) -> bool:
        """The kernel's addresses hold these shards of this layer."""
        for tensor, size in enumerate(self.remapper.layout.plan.experts.tensor_bytes):
            seen = bytes_at(self.remapper.addresses.expert(shards.layer, tensor, shards.first, shards.last))
            if not np.array_equal(seen, self.expected(shards.layer, tensor)[shards.first * size : shards.last * size]):
                return False
        return True

    def all_of(self, layer: int) -> ShardRange:
        return ShardRange(layer, 0, self.remapper.layout.plan.experts.n_shards)


@pytest.fixture
def rank() -> Iterator[Rank]:
    driver = MemfdDriver(SMALL.experts.page_bytes)
    remapper = Remapper(SMALL, driver)
    host = HostWeights(remapper.layout)
    rank = Rank(remapper, host, HostCopier(host, remapper.addresses, len(SMALL.experts.tensor_bytes)))
    for layer in range(SMALL.experts.n_layers):
        for tensor in range(len(SMALL.experts.tensor_bytes)):
            bytes_at(remapper.addresses.expert(layer, tensor))[:] = rank.expected(layer, tensor)
            host.take(layer, tensor, rank.expected(layer, tensor))
    yield rank
    remapper.close()
    driver.close()
