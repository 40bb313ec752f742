"""One rank's steps without vLLM: remaps and staging, in the order in which a worker sees them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.staging.conftest import Rank, rank  # noqa: F401
from vamp.engine.worker_memory import RankMemory
from vamp.errors import InvariantError
from vamp.memory.vote import Ballot, vote
from vamp.staging.host_weights import HostCopier
from vamp.staging.routed import Routed
from vamp.staging.whole_region import WholeRegion

ALL = np.arange(10)
LAYERS = range(4)


def memory_of(rank: Rank, mode: str = "whole_region") -> RankMemory:  # noqa: F811
    copier = HostCopier(rank.host, rank.remapper.addresses, len(rank.remapper.layout.plan.experts.tensor_bytes))
    stagers = {"whole_region": WholeRegion(rank.remapper, copier), "routed": Routed(rank.remapper, copier)}
    return RankMemory(rank.remapper, copier, stagers, mode=mode, top_k=2)  # type: ignore[arg-type]


def move(memory: RankMemory, seq: int, n_groups: int) -> int:
    return memory.finish(vote([memory.prepare(seq, n_groups)], 1))


def forward(rank: Rank, memory: RankMemory) -> bool:  # noqa: F811
    """Whether every layer read its own experts."""
    right = []
    for layer in LAYERS:
        memory.before_experts(layer, ALL)
        right.append(rank.equal(rank.all_of(layer)))
        memory.after_experts(layer)
    return all(right)


@pytest.mark.parametrize("mode", ["whole_region", "routed", "auto"])
def test_experts_are_right_whatever_the_boundary_does(rank: Rank, mode: str) -> None:  # noqa: F811
    memory = memory_of(rank, mode)
    for seq, n_groups in enumerate((1, 6, 2, 0, 5), start=1):
        assert move(memory, seq, n_groups) == n_groups
        for _ in range(2):
            memory.begin_step(8)
            assert forward(rank, memory)
        rank.remapper.check()
    stats = memory.stats()
    assert (stats.n_groups, stats.remaps, stats.failed) == (5, 5, 0)
    assert stats.host_checksum == rank.host.checksum()
    assert sum(stats.steps.values()) == 8  # two of ten steps had nothing offloaded


def test_the_boundary_may_move_after_a_forward_that_was_cut_short(rank: Rank) -> None:  # noqa: F811
    """Something is being copied ahead then; its buffer must not be taken away under the copy."""
    memory = memory_of(rank)
    move(memory, 1, 6)
    memory.begin_step(8)
    memory.before_experts(1, ALL)
    memory.after_experts(1)
    move(memory, 2, 3)
    memory.begin_step(8)
    assert forward(rank, memory)


def test_a_step_without_tokens_stages_nothing(rank: Rank) -> None:  # noqa: F811
    memory = memory_of(rank)
    copied = memory.stats().staged_bytes
    move(memory, 1, 6)
    memory.begin_step(0)
    assert (memory.stats().n_groups, memory.stats().staged_bytes) == (6, copied)


def test_a_missed_remap_is_noticed(rank: Rank) -> None:  # noqa: F811
    with pytest.raises(InvariantError, match="one was missed"):
        memory_of(rank).prepare(2, 1)


def test_one_rank_that_cannot_makes_no_rank_commit(rank: Rank) -> None:  # noqa: F811
    memory = memory_of(rank)
    move(memory, 1, 2)
    mine = memory.prepare(2, 5)
    other = Ballot(1, mine.seq, mine.n_groups, mine.before_blk, mine.before_blk, "no memory")
    assert memory.finish(vote([mine, other], 2)) == 2
    rank.remapper.check()
    memory.begin_step(8)
    assert forward(rank, memory)
    assert move(memory, 3, 5) == 5  # and the next remap works
    assert (memory.stats().remaps, memory.stats().failed) == (2, 1)
