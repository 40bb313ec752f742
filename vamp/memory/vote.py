"""All ranks or none: what each rank reports after preparing a remap, and the verdict on it.

Values only; the caller carries them between processes (collective_rpc returns the replies of all ranks):

    ballots = every rank: remapper.prepare(seq, n_groups)
    verdict = vote(ballots, n_ranks)
    every rank: remapper.finish(verdict)

No kernel may run between the two rounds. A rank that raises FatalRemapError casts no ballot; stop the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vamp.memory.geometry import common_capacity_blk


@dataclass(frozen=True, slots=True)
class Ballot:
    """One rank's answer.

    Attributes:
        seq: number of the remap; n_groups: groups offloaded if it is committed.
        before_blk, after_blk: the rank's KV blocks if all ranks abort, and if all commit.
        error: why the rank cannot; "" if it is ready.
    """

    rank: int
    seq: int
    n_groups: int
    before_blk: int
    after_blk: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What every rank must do, and the KV blocks that all of them have then.

    Attributes:
        reason: why not; "" if committed.
    """

    seq: int
    commit: bool
    capacity_blk: int
    reason: str = ""


def vote(ballots: Sequence[Ballot], n_ranks: int) -> Verdict:
    """Commit only if every rank answered, is ready and means the same remap; the smallest sets the capacity.

    Raises:
        GeometryError: nobody voted, so that there is nothing to finish.
    """
    reason = _objection(ballots, n_ranks)
    capacities = [b.before_blk if reason else b.after_blk for b in ballots]
    capacity = common_capacity_blk(capacities)
    return Verdict(ballots[0].seq, not reason, capacity, reason)


def _objection(ballots: Sequence[Ballot], n_ranks: int) -> str:
    ranks = sorted({b.rank for b in ballots})
    if len(ballots) != n_ranks or len(ranks) != n_ranks:
        return f"{len(ballots)} ballots from ranks {ranks}, {n_ranks} ranks are needed"
    if len({(b.seq, b.n_groups) for b in ballots}) > 1:
        meant = ", ".join(f"rank {b.rank}: seq {b.seq}, {b.n_groups} groups" for b in ballots)
        return f"ranks mean different remaps ({meant})"
    return "; ".join(f"rank {b.rank}: {b.error}" for b in ballots if b.error)
