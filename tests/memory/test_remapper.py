"""Real pages under experts, KV tensors and staging buffers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.helpers import (
    PAGE,
    SMALL,
    Host,
    kv_pages,
    kv_view,
    readable,
    small_plans,
)
from vamp.errors import RemapError
from vamp.memory.driver import Guard
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.geometry import PoolPlan
from vamp.memory.region import bytes_at
from vamp.memory.remapper import Remapper
from vamp.memory.spans import KvSpan, Place, ShardRange


@pytest.fixture
def remapper(driver: MemfdDriver) -> Remapper:
    return Remapper(SMALL, driver)


# capacity


def test_growth_adds_the_blocks_that_the_geometry_promises(remapper: Remapper) -> None:
    for n in range(SMALL.limit_groups + 1):
        remapper.remap(n)
        remapper.check()
        assert remapper.n_groups == n
        assert remapper.capacity_blk == SMALL.capacity_blk(n) == min(kv_pages(SMALL, n)) * PAGE // 6000
        assert remapper.holdings.kv == sum(kv_pages(SMALL, n))


@settings(max_examples=40, deadline=None)
@given(small_plans(), st.data())
def test_any_plan_backs_its_capacity_and_no_more(plan: PoolPlan, data: st.DataObject) -> None:
    driver = MemfdDriver(PAGE)
    remapper = Remapper(plan, driver)
    for n in data.draw(st.lists(st.integers(0, plan.limit_groups), max_size=4)):
        remapper.remap(n)
        remapper.check()
        for tensor, pages in enumerate(kv_pages(plan, n)):
            start = remapper.addresses.kv(tensor).address
            assert readable(start + remapper.capacity_blk * plan.kv.page_bytes - 1)
            assert pages == remapper.layout.kv_max_pages or not readable(start + pages * PAGE)
    remapper.close()
    driver.close()


def test_the_same_boundary_by_any_path_is_the_same_ledger(driver: MemfdDriver) -> None:
    paths = ([4], [1, 2, 3, 4], [6, 0, 5, 4], [2, 6, 1, 4])
    ledgers = []
    for path in paths:
        own = MemfdDriver(PAGE)
        remapper = Remapper(SMALL, own)
        for n in path:
            remapper.remap(n)
        ledgers.append(dict(remapper.ledger.mapped))
        remapper.close()
        own.close()
    assert ledgers[0] == ledgers[1] == ledgers[2] == ledgers[3]
    other = Remapper(SMALL, driver)
    other.remap(5)
    assert dict(other.ledger.mapped) != ledgers[0]


def test_a_boundary_outside_the_limit_is_refused(remapper: Remapper) -> None:
    for n in (-1, 7):
        with pytest.raises(RemapError, match=f"{n} groups cannot be offloaded; the limit is 0 to 6"):
            remapper.remap(n)
    remapper.check()


def test_a_plan_without_anything_to_move_is_fine(driver: MemfdDriver) -> None:
    remapper = Remapper(PoolPlan(SMALL.experts, SMALL.kv, 5, 0), driver)
    assert remapper.remap(0) == ()
    remapper.check()
    assert remapper.holdings.staging == 0


# contents


def test_new_kv_pages_show_nothing_of_the_experts(remapper: Remapper) -> None:
    Host(SMALL).load_all(remapper)
    remapper.remap(5)
    for tensor in range(4):
        assert not kv_view(remapper, SMALL, tensor).any()


def test_kv_contents_stay_when_the_pool_grows_and_when_it_shrinks(remapper: Remapper) -> None:
    remapper.remap(3)
    for tensor in range(4):
        kv_view(remapper, SMALL, tensor)[:] = 10 + tensor
    remapper.remap(6)
    remapper.remap(1)
    for tensor in range(4):
        assert np.all(kv_view(remapper, SMALL, tensor) == 10 + tensor)


def test_restored_experts_show_nothing_of_the_kv_cache(remapper: Remapper) -> None:
    host = Host(SMALL)
    host.load_all(remapper)
    remapper.remap(6)
    for tensor in range(4):
        kv_view(remapper, SMALL, tensor)[:] = 123
    restored = remapper.remap(4)
    assert restored == (ShardRange(2, 2, 6), ShardRange(3, 2, 6))
    for r in restored:
        for t in range(2):
            assert np.all(bytes_at(remapper.addresses.expert(r.layer, t, r.first, r.last)) == 0xFF)
    assert not host.as_kernels_read(remapper, 2)
    host.load(remapper, restored)
    for layer in (2, 3):
        host.stage(remapper, layer)
        assert host.as_kernels_read(remapper, layer)


def test_kernels_read_staged_experts_at_their_own_addresses(remapper: Remapper) -> None:
    """The layer's buffer holds its shards; the next layer's copy does not disturb it, the one after that does."""
    host = Host(SMALL)
    host.load_all(remapper)
    remapper.remap(6)
    host.stage(remapper, 1)
    host.stage(remapper, 2)
    assert host.as_kernels_read(remapper, 0)
    assert host.as_kernels_read(remapper, 1) and host.as_kernels_read(remapper, 2)
    assert not host.as_kernels_read(remapper, 3), "layer 3 shares the buffer of layer 1, which holds layer 1's shards"
    host.stage(remapper, 3)
    assert host.as_kernels_read(remapper, 3)
    assert not host.as_kernels_read(remapper, 1)
    for t in range(2):
        shared = [bytes_at(remapper.addresses.expert(layer, t, 2)) for layer in (1, 3)]
        assert np.array_equal(*shared)


def test_what_was_never_staged_is_nan(remapper: Remapper) -> None:
    Host(SMALL).load_all(remapper)
    remapper.remap(6)
    raw = bytes_at(remapper.addresses.expert(2, 0, 2)).view(np.uint16).astype(np.uint32) << 16
    assert np.isnan(raw.view(np.float32)).all()


def test_resident_shards_do_not_move(remapper: Remapper) -> None:
    host = Host(SMALL)
    host.load_all(remapper)
    remapper.remap(4)  # layer 1 gave two groups, layers 2 and 3 one
    for layer, first in ((0, 10), (1, 2), (2, 6), (3, 6)):
        assert remapper.offloaded(layer) == ShardRange(layer, first, 10)
        for t, size in enumerate(SMALL.experts.tensor_bytes):
            resident = bytes_at(remapper.addresses.expert(layer, t, 0, first))
            assert np.array_equal(resident, host.tensors[layer, t][: first * size])


@pytest.mark.parametrize(("guard", "byte"), [(Guard.HOLE, None), (Guard.POISON, 0xFF), (Guard.ZERO, 0)])
def test_a_kv_tail_that_is_not_there_has_the_guard(driver: MemfdDriver, guard: Guard, byte: int | None) -> None:
    remapper = Remapper(SMALL, driver, guard=guard)
    past = remapper.addresses.pages(Place(KvSpan(0), 8), 1)
    for _ in range(2):
        assert readable(past.address) == (byte is not None)
        assert byte is None or np.all(bytes_at(past) == byte)
        remapper.remap(2)
        assert readable(past.address)
        bytes_at(past)[:] = 55
        remapper.remap(0)
