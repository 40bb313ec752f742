"""Both staging modes: what a kernel reads during its layer is what the layer's experts hold."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.staging.conftest import Rank
from vamp.errors import InvariantError
from vamp.memory.spans import ShardRange
from vamp.staging.routed import Routed, needed
from vamp.staging.whole_region import WholeRegion

ALL = np.arange(10)


class NoCopy:
    def stage(self, shards: ShardRange) -> int:
        return 0


class HeldCopy:
    """Copies when told to."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.go = rank, threading.Event()

    def stage(self, shards: ShardRange) -> int:
        assert self.go.wait(10)
        return self.rank.copier.stage(shards)


@pytest.mark.parametrize("n_groups", range(7))
@pytest.mark.parametrize("mode", [WholeRegion, Routed])
def test_every_layer_reads_its_own_experts(rank: Rank, mode: type, n_groups: int) -> None:
    rank.remapper.remap(n_groups)
    stager = mode(rank.remapper, rank.copier)
    for _ in range(3):
        stager.begin_step()
        for layer in range(4):
            stager.before_experts(layer, ALL)
            assert rank.equal(rank.all_of(layer))
            stager.after_experts(layer)
    stager.drain()


@pytest.mark.parametrize("mode", [WholeRegion, Routed])
def test_without_copies_the_experts_are_wrong(rank: Rank, mode: type) -> None:
    rank.remapper.remap(6)
    stager = mode(rank.remapper, NoCopy())
    stager.begin_step()
    stager.before_experts(1, ALL)
    assert not rank.equal(rank.all_of(1))


def test_whole_region_waits_for_its_copy(rank: Rank) -> None:
    rank.remapper.remap(6)
    held = HeldCopy(rank)
    stager = WholeRegion(rank.remapper, held)
    stager.begin_step()
    entered = threading.Event()

    def kernel() -> None:
        stager.before_experts(1, ALL)
        entered.set()

    thread = threading.Thread(target=kernel)
    thread.start()
    assert not entered.wait(0.1)
    held.go.set()
    assert entered.wait(10)
    thread.join()
    assert rank.equal(rank.all_of(1))
    stager.drain()


def test_a_buffer_that_is_read_is_not_overwritten(rank: Rank) -> None:
    rank.remapper.remap(6)
    stager = WholeRegion(rank.remapper, rank.copier)
    stager.begin_step()
    stager.before_experts(1, ALL)
    with pytest.raises(InvariantError, match="in use for layer 1"):
        stager.before_experts(2, ALL)  # wants layer 3 ahead, in the buffer that layer 1 has not left
    stager.drain()


def test_a_forward_without_a_step_is_staged_too(rank: Rank) -> None:
    rank.remapper.remap(6)
    stager = WholeRegion(rank.remapper, rank.copier)
    for layer in range(4):
        stager.before_experts(layer, ALL)
        assert rank.equal(rank.all_of(layer))
        stager.after_experts(layer)


def test_routed_copies_the_selected_ones_only(rank: Rank) -> None:
    rank.remapper.remap(6)  # 8 of 10 shards in each eligible layer
    stager = Routed(rank.remapper, rank.copier)
    stager.before_experts(1, np.array([[0, 3], [4, 9]]))
    size = rank.remapper.layout.plan.experts.shard_bytes
    assert rank.copier.staged_bytes == 3 * size
    assert rank.equal(ShardRange(1, 3, 5)) and rank.equal(ShardRange(1, 9, 10))
    assert not rank.equal(ShardRange(1, 5, 9))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10), st.lists(st.integers(0, 9)))
def test_needed_is_the_selected_part_of_the_offloaded_range(first: int, chosen: list[int]) -> None:
    ranges = list(needed(ShardRange(1, first, 10), np.array(chosen, np.int32)))
    got = [shard for r in ranges for shard in range(r.first, r.last)]
    assert got == sorted({c for c in chosen if c >= first})
    assert all(a.last < b.first for a, b in itertools.pairwise(ranges))  # neighbours are joined
