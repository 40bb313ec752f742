"""Host copies: taken once, enough to bring every offloaded expert back."""

from __future__ import annotations

import numpy as np
import pytest

from tests.staging.conftest import Rank
from vamp.errors import GeometryError, InvariantError


def test_experts_come_back_from_their_host_copies(rank: Rank) -> None:
    layers = range(rank.remapper.layout.plan.experts.n_layers)
    crc = rank.host.checksum()
    rank.remapper.remap(6)
    assert not all(rank.equal(rank.all_of(layer)) for layer in layers)  # their pages are KV cache now
    for shards in rank.remapper.remap(0):
        assert not rank.equal(shards)
        rank.copier.restore(shards)
    assert all(rank.equal(rank.all_of(layer)) for layer in layers)
    assert rank.host.checksum() == crc


def test_the_checksum_sees_one_changed_bit(rank: Rank) -> None:
    crc = rank.host.checksum()
    rank.host.shards(1, 0, 8, 9)[0] ^= 1
    assert rank.host.checksum() != crc


def test_only_what_may_be_offloaded_is_kept(rank: Rank) -> None:
    plan = rank.remapper.layout.plan
    kept = sum(rank.remapper.layout.staged_shards(layer) for layer in range(plan.experts.n_layers))
    assert rank.host.nbytes == kept * plan.experts.shard_bytes
    with pytest.raises(InvariantError, match="no host copy of shards 0 to 1"):
        rank.host.shards(1, 0, 0, 1)
    with pytest.raises(InvariantError, match="layer 0"):
        rank.host.shards(0, 0, 9, 10)  # a resident layer


def test_another_size_than_planned_is_refused(rank: Rank) -> None:
    with pytest.raises(GeometryError, match="has 3 B"):
        rank.host.take(1, 0, np.zeros(3, np.uint8))
