"""One rank's steps without vLLM: commands, remaps, staging, in the order in which a worker sees them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.staging.conftest import Rank, rank  # noqa: F401
from vamp.engine.command import RemapCommand
from vamp.engine.worker_memory import RankMemory
from vamp.errors import FatalRemapError, InvariantError
from vamp.memory.vote import Ballot

ALL = np.arange(10)
LAYERS = range(4)


def alone(ballot: Ballot) -> Sequence[Ballot]:
    return [ballot]


def memory_of(rank: Rank, mode: str = "whole_region", gather: object = alone) -> RankMemory:  # noqa: F811
    return RankMemory(rank.remapper, rank.host, gather, mode=mode, top_k=2)  # type: ignore[arg-type]


def command(rank: Rank, seq: int, n_groups: int) -> RemapCommand:  # noqa: F811
    return RemapCommand(seq, n_groups, rank.remapper.layout.plan.capacity_blk(n_groups))


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
        memory.begin_step(command(rank, seq, n_groups), 8)
        assert forward(rank, memory)
        memory.begin_step(None, 8)
        assert forward(rank, memory)
        rank.remapper.check()
    stats = memory.stats()
    assert (stats.n_groups, stats.remaps) == (5, 5)
    assert stats.host_checksum == rank.host.checksum()
    assert sum(stats.steps.values()) == 8  # two of ten steps had nothing offloaded


def test_a_step_without_tokens_remaps_and_stages_nothing(rank: Rank) -> None:  # noqa: F811
    memory = memory_of(rank)
    copied = memory.stats().staged_bytes
    memory.begin_step(command(rank, 1, 6), 0)
    assert (memory.stats().n_groups, memory.stats().staged_bytes) == (6, copied)


def test_a_missed_command_is_noticed(rank: Rank) -> None:  # noqa: F811
    with pytest.raises(InvariantError, match="one was missed"):
        memory_of(rank).begin_step(command(rank, 2, 1), 1)


def test_more_blocks_than_pages_back_are_noticed(rank: Rank) -> None:  # noqa: F811
    with pytest.raises(InvariantError, match="promises more"):
        memory_of(rank).begin_step(RemapCommand(1, 0, 1000), 1)


def test_one_rank_that_cannot_stops_all_and_moves_nothing(rank: Rank) -> None:  # noqa: F811
    def other_fails(ballot: Ballot) -> Sequence[Ballot]:
        return [ballot, Ballot(1, ballot.seq, ballot.n_groups, ballot.before_blk, ballot.before_blk, "no memory")]

    with pytest.raises(FatalRemapError, match="rank 1: no memory"):
        memory_of(rank, gather=other_fails).begin_step(command(rank, 1, 3), 1)
    assert rank.remapper.n_groups == 0
    rank.remapper.check()
