"""Failing calls at every point, checks that must fail, and two ranks that vote."""

import numpy as np
import pytest

from tests.memory.helpers import (
    PAGE,
    SMALL,
    FailingDriver,
    Host,
    kernel_mappings,
    kv_view,
    ledger_mappings,
    page_mappings,
)
from vamp.errors import DriverError, FatalRemapError, InvariantError, RemapError
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.geometry import PoolPlan
from vamp.memory.remapper import Remapper
from vamp.memory.spans import KvSpan, Place, SpanLayout
from vamp.memory.vote import Verdict, vote


@pytest.fixture
def remapper(driver: MemfdDriver) -> Remapper:
    return Remapper(SMALL, driver)


# failures


@pytest.mark.parametrize(("have", "want"), [(1, 3), (3, 1), (0, 1), (6, 5)])
def test_a_failure_at_any_call_leaves_everything_as_it_was(failing: FailingDriver, have: int, want: int) -> None:
    remapper, host = Remapper(SMALL, failing), Host(SMALL)
    host.load_all(remapper)
    remapper.remap(have)
    for tensor in range(4):
        kv_view(remapper, SMALL, tensor)[:] = 200 + tensor
    before = dict(remapper.ledger.mapped)
    failing.arm()
    remapper.prepare(1, want)
    n_calls = failing.calls
    remapper.finish(Verdict(1, False, 0))
    assert n_calls > 20
    for k in range(1, n_calls + 1):
        failing.arm({k})
        with pytest.raises(RemapError, match=f"made to fail at call {k}"):
            remapper.remap(want)
        remapper.check()
        assert dict(remapper.ledger.mapped) == before
        assert remapper.n_groups == have
        if k % 10 == 1:
            assert ledger_mappings(remapper.ledger, remapper.addresses) == kernel_mappings(failing.inner)
    for tensor in range(4):
        assert np.all(kv_view(remapper, SMALL, tensor) == 200 + tensor)
    for layer in range(4):
        host.stage(remapper, layer)
        assert host.as_kernels_read(remapper, layer)
    failing.arm()
    remapper.remap(want)  # nothing stands in the way of the next attempt
    remapper.check()


def test_a_broken_rank_refuses_everything_but_close(failing: FailingDriver, driver: MemfdDriver) -> None:
    remapper = Remapper(SMALL, failing)
    failing.arm({9, 10})
    with pytest.raises(FatalRemapError, match="stop this rank"):
        remapper.prepare(1, 3)
    remapper.ledger.check()
    with pytest.raises(InvariantError, match="stop this rank"):
        remapper.check()
    with pytest.raises(InvariantError, match="stop this rank"):
        remapper.prepare(2, 3)
    remapper.close()
    assert driver.physical_bytes() == 0


def test_a_start_that_fails_gives_everything_back(failing: FailingDriver, driver: MemfdDriver) -> None:
    Remapper(SMALL, failing).close()
    n_calls = failing.calls // 2  # the other half is close
    before = page_mappings()
    for k in range(1, n_calls, 7):
        failing.arm({k})
        with pytest.raises((DriverError, RemapError, FatalRemapError), match=f"made to fail at call {k}"):
            Remapper(SMALL, failing)
        assert (page_mappings(), driver.physical_bytes(), driver.in_use_bytes) == (before, 0, 0)


def test_too_little_memory_at_the_start(driver: MemfdDriver) -> None:
    driver.capacity_bytes = 50 * PAGE
    with pytest.raises(DriverError, match="no memory left"):
        Remapper(SMALL, driver)
    assert driver.in_use_bytes == 0


def test_pages_that_the_driver_cannot_make(driver: MemfdDriver) -> None:
    coarse = MemfdDriver(4 * PAGE)
    with pytest.raises(DriverError, match="whole number of pages"):
        Remapper(SMALL, coarse)
    coarse.close()


# check must be able to fail


def test_check_finds_a_page_in_the_wrong_place(remapper: Remapper) -> None:
    remapper.remap(3)
    last = Place(KvSpan(0), max(p.page for p in remapper.ledger.mapped if p.span == KvSpan(0)))
    run = remapper.ledger.mapped[last]
    remapper.ledger.detach(run, last)
    remapper.ledger.attach(run, Place(KvSpan(0), last.page + 1))
    with pytest.raises(InvariantError, match="2 mappings do not fit 3 groups"):
        remapper.check()


def test_check_finds_pages_that_are_not_dealt_alike(driver: MemfdDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page is where the layout says, but one tensor got them all."""
    monkeypatch.setattr(SpanLayout, "_tail_place", lambda self, k: Place(KvSpan(0), self.kv_base_pages + k))
    remapper = Remapper(SMALL, driver)
    remapper.remap(1)
    with pytest.raises(InvariantError, match=f"KV pages back 5 blocks; 1 groups make {SMALL.capacity_blk(1)}"):
        remapper.check()


def test_check_finds_a_wrong_boundary(remapper: Remapper) -> None:
    remapper.n_groups = 1
    with pytest.raises(InvariantError, match="do not fit 1 groups"):
        remapper.check()


# ranks


def two_ranks(second: PoolPlan = SMALL) -> tuple[list[FailingDriver], list[Remapper]]:
    drivers = [FailingDriver(MemfdDriver(PAGE)) for _ in range(2)]
    ranks = [Remapper(p, d, rank=i) for i, (p, d) in enumerate(zip((SMALL, second), drivers, strict=True))]
    return drivers, ranks


def round_of(ranks: list[Remapper], seq: int, n_groups: int) -> Verdict:
    verdict = vote([r.prepare(seq, n_groups) for r in ranks], len(ranks))
    for r in ranks:
        r.finish(verdict)
        r.check()
    return verdict


def test_two_ranks_move_together_or_not_at_all() -> None:
    drivers, ranks = two_ranks()
    for d in drivers:
        d.arm()
    assert round_of(ranks, 1, 2) == Verdict(1, True, SMALL.capacity_blk(2))
    drivers[1].arm({5})
    refused = round_of(ranks, 2, 6)
    assert (refused.commit, refused.capacity_blk) == (False, SMALL.capacity_blk(2))
    assert refused.reason.startswith("rank 1: pages could not be remapped, 2 steps are undone: ")
    assert [r.n_groups for r in ranks] == [2, 2]
    assert dict(ranks[0].ledger.mapped) == dict(ranks[1].ledger.mapped)
    assert round_of(ranks, 3, 6).commit
    assert [r.n_groups for r in ranks] == [6, 6]


def test_a_rank_that_prepared_keeps_its_contents_when_another_cannot() -> None:
    drivers, ranks = two_ranks()
    host = Host(SMALL)
    host.load_all(ranks[0])
    drivers[1].arm({1})
    assert not round_of(ranks, 1, 6).commit
    assert all(host.as_kernels_read(ranks[0], layer) for layer in range(4))
    assert round_of(ranks, 2, 6).commit
    assert not host.as_kernels_read(ranks[0], 1), "once committed, the pages are gone"


def test_the_smaller_rank_decides() -> None:
    _, ranks = two_ranks(PoolPlan(SMALL.experts, SMALL.kv, 3, SMALL.limit_groups))
    verdict = round_of(ranks, 1, 4)
    assert verdict.commit
    assert verdict.capacity_blk == ranks[1].capacity_blk < ranks[0].capacity_blk


def test_a_rank_with_a_lower_limit_stops_all() -> None:
    _, ranks = two_ranks(PoolPlan(SMALL.experts, SMALL.kv, 5, 3))
    verdict = round_of(ranks, 1, 4)
    assert not verdict.commit and "rank 1: 4 groups cannot be offloaded" in verdict.reason
    assert round_of(ranks, 2, 3).commit


def test_rounds_are_not_mixed_up(remapper: Remapper) -> None:
    with pytest.raises(InvariantError, match="does not fit"):
        remapper.finish(Verdict(1, False, 0))
    remapper.prepare(1, 2)
    with pytest.raises(InvariantError, match="remap 1 is not finished"):
        remapper.prepare(2, 3)
    with pytest.raises(InvariantError, match="does not fit"):
        remapper.finish(Verdict(2, True, 0))
    remapper.finish(Verdict(1, False, 0))
    assert remapper.prepare(3, 99).error
    with pytest.raises(InvariantError, match="does not fit"):
        remapper.finish(Verdict(3, True, 0))
