"""A held growth: KV blocks at once, the experts' addresses later, and nothing lost in between."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.helpers import (
    PAGE,
    SMALL,
    FailingDriver,
    Host,
    kernel_mappings,
    kv_view,
    ledger_mappings,
    small_plans,
)
from vamp.errors import FatalRemapError, InvariantError
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.geometry import PoolPlan
from vamp.memory.remapper import Remapper
from vamp.memory.vote import Verdict, vote


def hold(remapper: Remapper, seq: int, n_groups: int) -> None:
    """Nobody waits for a running step."""
    remapper.finish(vote([remapper.prepare(seq, n_groups, _unwanted, hold=True)], 1))


def _unwanted() -> None:
    raise AssertionError("a held growth waited")


@pytest.fixture
def loaded(driver: MemfdDriver) -> tuple[Remapper, Host]:
    remapper, host = Remapper(SMALL, driver), Host(SMALL)
    host.load_all(remapper)
    return remapper, host


def test_until_it_is_committed_the_running_step_reads_its_experts(loaded: tuple[Remapper, Host]) -> None:
    remapper, host = loaded
    ballot = remapper.prepare(1, 4, _unwanted, hold=True)
    assert all(host.as_kernels_read(remapper, layer) for layer in range(4))
    remapper.finish(vote([ballot], 1))
    assert remapper.held and remapper.n_groups == 4
    assert not host.as_kernels_read(remapper, 1)  # the pages are zeroed, and still mapped there
    remapper.check()


def test_leaving_ends_where_an_ordinary_growth_does(driver: MemfdDriver, loaded: tuple[Remapper, Host]) -> None:
    remapper, host = loaded
    hold(remapper, 1, 4)
    for tensor in range(SMALL.kv.n_tensors):
        kv_view(remapper, SMALL, tensor)[:] = 50 + tensor
    before = dict(remapper.ledger.mapped)
    remapper.leave()
    remapper.check()
    own = MemfdDriver(PAGE)
    other = Remapper(SMALL, own)
    other.remap(4)
    assert dict(remapper.ledger.mapped) == dict(other.ledger.mapped) != before
    assert ledger_mappings(remapper.ledger, remapper.addresses) == kernel_mappings(driver)
    for layer in range(4):
        host.stage(remapper, layer)
        assert host.as_kernels_read(remapper, layer)
    assert all(np.all(kv_view(remapper, SMALL, t) == 50 + t) for t in range(SMALL.kv.n_tensors))
    other.close()
    own.close()


def test_what_is_held_must_leave_before_experts_come_back(loaded: tuple[Remapper, Host]) -> None:
    remapper, host = loaded
    hold(remapper, 1, 4)
    for n_groups, held in ((2, True), (2, False), (5, False)):
        with pytest.raises(InvariantError, match="call leave before remap 2"):
            remapper.prepare(2, n_groups, hold=held)
    remapper.leave()
    host.load(remapper, remapper.remap(0))
    assert all(host.as_kernels_read(remapper, layer) for layer in range(4))


def test_leaving_during_a_remap_is_refused_and_loses_nothing(loaded: tuple[Remapper, Host]) -> None:
    remapper, _ = loaded
    hold(remapper, 1, 2)
    ballot = remapper.prepare(2, 4, hold=True)
    with pytest.raises(InvariantError, match="steps are open"):
        remapper.leave()
    remapper.finish(vote([ballot], 1))
    remapper.leave()
    remapper.check()


def test_a_growth_that_is_not_committed_leaves_the_held_one(loaded: tuple[Remapper, Host]) -> None:
    remapper, host = loaded
    hold(remapper, 1, 2)
    remapper.prepare(2, 5, hold=True)
    remapper.finish(Verdict(2, False, 0, "another rank could not"))
    remapper.check()
    assert remapper.held and remapper.n_groups == 2
    remapper.leave()
    remapper.check()
    for layer in range(4):
        host.stage(remapper, layer)
        assert host.as_kernels_read(remapper, layer)


def test_a_failure_while_leaving_is_fatal(failing: FailingDriver) -> None:
    remapper = Remapper(SMALL, failing)
    hold(remapper, 1, 2)
    failing.arm({3})
    with pytest.raises(FatalRemapError, match=r"could not leave the experts: .*made to fail at call 3"):
        remapper.leave()
    remapper.close()


def test_a_held_growth_can_be_given_back_to_the_system(driver: MemfdDriver) -> None:
    remapper = Remapper(SMALL, driver)
    hold(remapper, 1, 3)
    assert kernel_mappings(driver)
    remapper.close()
    assert not kernel_mappings(driver)


@settings(max_examples=40, deadline=None)
@given(small_plans(), st.data())
def test_any_order_of_held_and_ordinary_remaps_keeps_every_page(plan: PoolPlan, data: st.DataObject) -> None:
    driver = MemfdDriver(PAGE)
    remapper, host = Remapper(plan, driver), Host(plan)
    host.load_all(remapper)
    moves = st.lists(st.tuples(st.integers(0, plan.limit_groups), st.booleans()), max_size=6)
    for seq, (n_groups, leave) in enumerate(data.draw(moves), start=1):
        if n_groups >= remapper.n_groups:
            hold(remapper, seq, n_groups)
        else:
            remapper.leave()
            host.load(remapper, remapper.remap(n_groups))
        remapper.check()
        if leave:
            remapper.leave()
            remapper.check()
    remapper.leave()
    remapper.check()
    for layer in range(plan.experts.n_layers):
        host.stage(remapper, layer)
        assert host.as_kernels_read(remapper, layer)
    remapper.close()
    driver.close()
