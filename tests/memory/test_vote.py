import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import GeometryError
from vamp.memory.vote import Ballot, Verdict, vote


def ballot(rank: int, after: int = 100, error: str = "", seq: int = 3, n_groups: int = 8, before: int = 50) -> Ballot:
    return Ballot(rank, seq, n_groups, before, before if error else after, error)


def test_the_smallest_rank_sets_the_capacity() -> None:
    assert vote([ballot(0, 100), ballot(1, 63)], 2) == Verdict(3, True, 63)


def test_one_no_is_enough_and_says_why() -> None:
    verdict = vote([ballot(0), ballot(1, error="map: no memory", before=40)], 2)
    assert verdict == Verdict(3, False, 40, "rank 1: map: no memory")


@pytest.mark.parametrize(
    ("ballots", "reason"),
    [
        ([ballot(0)], "1 ballots from ranks [0], 2 ranks"),
        ([ballot(0), ballot(0)], "2 ballots from ranks [0], 2 ranks"),
        ([ballot(0), ballot(1), ballot(1)], "3 ballots from ranks [0, 1], 2 ranks"),
        ([ballot(0), ballot(1, seq=4)], "rank 1: seq 4"),
        ([ballot(0), ballot(1, n_groups=9)], "9 groups"),
    ],
)
def test_ranks_that_are_missing_or_mean_something_else(ballots: list[Ballot], reason: str) -> None:
    verdict = vote(ballots, 2)
    assert not verdict.commit and reason in verdict.reason
    assert verdict.capacity_blk == 50


def test_nobody_voted() -> None:
    with pytest.raises(GeometryError, match="no rank"):
        vote([], 2)


@given(st.lists(st.tuples(st.integers(2, 99), st.integers(0, 99), st.booleans()), min_size=1, max_size=8))
def test_all_or_none(ranks: list[tuple[int, int, bool]]) -> None:
    ballots = [
        Ballot(rank, 1, 2, before, before + more if ready else before, "" if ready else "cannot")
        for rank, (before, more, ready) in enumerate(ranks)
    ]
    verdict = vote(ballots, len(ballots))
    assert verdict.commit == all(ready for *_, ready in ranks) == (verdict.reason == "")
    assert verdict.capacity_blk == min(b + (more if verdict.commit else 0) for b, more, _ in ranks)


def test_they_travel_between_processes() -> None:
    for value in (ballot(1, error="x"), Verdict(1, False, 5, "y")):
        assert pickle.loads(pickle.dumps(value)) == value
