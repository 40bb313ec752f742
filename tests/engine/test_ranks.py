"""What the scheduler does with an executor whose workers answer as they should, or are not VAMP's."""

from __future__ import annotations

from typing import Any

import pytest

from vamp.engine.ranks import ExecutorRanks, ranks_of_engine_core
from vamp.errors import ConfigError, InvariantError
from vamp.memory.vote import Ballot, Verdict


class Workers:
    """Answers as vLLM's executors do: one reply per worker, or one RuntimeError."""

    def __init__(self, replies: dict[str, Any]) -> None:
        self.replies, self.calls = replies, []  # type: ignore[var-annotated]

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        self.calls.append((method, args))
        if method not in self.replies:
            raise RuntimeError(f"Worker failed with error 'no attribute {method}'")
        reply = self.replies[method]
        return list(reply(*args)) if callable(reply) else reply


def test_workers_that_are_not_vamps_are_refused_at_start() -> None:
    with pytest.raises(ConfigError, match=r"--worker-cls vamp\.engine.*no attribute vamp_ready"):
        ExecutorRanks(Workers({})).check_ready()
    with pytest.raises(ConfigError, match="1 of 2 serve without VAMP"):
        ExecutorRanks(Workers({"vamp_ready": [True, False]})).check_ready()
    ExecutorRanks(Workers({"vamp_ready": [True, True]})).check_ready()


def test_ballots_of_all_ranks_make_the_verdict_that_all_get() -> None:
    def ballots(seq: int, n_groups: int) -> list[Ballot]:
        return [Ballot(rank, seq, n_groups, 10, 20, "no memory" if rank else "") for rank in range(2)]

    workers = Workers({"vamp_prepare": ballots, "vamp_finish": [0, 0]})
    verdict = ExecutorRanks(workers).remap(3)
    assert (verdict.commit, verdict.capacity_blk) == (False, 10) and "rank 1: no memory" in verdict.reason
    assert workers.calls == [("vamp_prepare", (1, 3)), ("vamp_finish", (verdict,))]


def test_ranks_that_end_differently_are_noticed() -> None:
    def ballots(seq: int, n_groups: int) -> list[Ballot]:
        return [Ballot(rank, seq, n_groups, 10, 20) for rank in range(2)]

    def finish(verdict: Verdict) -> list[int]:
        return [3, 0]

    with pytest.raises(InvariantError, match="must be equal"):
        ExecutorRanks(Workers({"vamp_prepare": ballots, "vamp_finish": finish})).remap(3)


def test_outside_an_engine_core_there_are_no_ranks() -> None:
    assert ranks_of_engine_core() is None
