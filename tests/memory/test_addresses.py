from contextlib import ExitStack

import pytest

from tests.memory.helpers import PAGE, SMALL
from vamp.errors import AddressError
from vamp.memory.addresses import Addresses
from vamp.memory.driver import Guard
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.spans import KvSpan, Place, SpanLayout


@pytest.fixture
def addresses(driver: MemfdDriver) -> Addresses:
    return Addresses(SpanLayout(SMALL), driver, Guard.HOLE, ExitStack())


def test_shards_follow_each_other_to_the_end_of_the_span(addresses: Addresses) -> None:
    whole = addresses.expert(1, 1)
    assert whole.nbytes == 10 * 3072
    assert whole.end % PAGE == 0 and whole.address % PAGE == 2048
    assert addresses.expert(1, 1, 6, 10).address == whole.address + 6 * 3072
    assert addresses.expert(1, 1, 6) == addresses.expert(1, 1, 6, 10)
    assert addresses.expert(1, 1, 6, 7).nbytes == 3072


def test_staging_mirrors_the_tail(addresses: Addresses) -> None:
    assert addresses.staging(1, 0, 2).address % PAGE == 0
    for e in range(2, 10):
        from_end = addresses.expert(1, 0).end - addresses.expert(1, 0, e).address
        assert addresses.staging(1, 0, 2).end - addresses.staging(1, 0, e).address == from_end


def test_layers_alternate_between_two_buffers(addresses: Addresses) -> None:
    first, second, third = (addresses.staging(layer, 0, 2) for layer in (1, 2, 3))
    assert first == third != second


def test_shards_that_no_buffer_holds_are_refused(addresses: Addresses) -> None:
    with pytest.raises(AddressError, match="layer 1 not in the buffer: 1; the limit is from 2"):
        addresses.staging(1, 0, 1)
    with pytest.raises(AddressError, match="layer 0 not in the buffer"):
        addresses.staging(0, 0, 9)
    with pytest.raises(AddressError, match="outside the region"):
        addresses.expert(1, 0, 9, 11)


def test_a_kv_tensor_has_its_virtual_maximum(addresses: Addresses) -> None:
    region = addresses.kv(3)
    assert region.nbytes == SMALL.max_blk * 6000 <= 22 * PAGE
    assert addresses.pages(Place(KvSpan(3), 0), 1).address == region.address
    assert addresses.pages(Place(KvSpan(3), 2), 3).address == region.address + 2 * PAGE
    assert addresses.pages(Place(KvSpan(3), 2), 3).nbytes == 3 * PAGE


def test_ranges_go_back_with_the_stack(driver: MemfdDriver) -> None:
    stack = ExitStack()
    held = Addresses(SpanLayout(SMALL), driver, Guard.HOLE, stack).kv(0).address
    stack.close()
    with pytest.raises(AddressError, match="no reserved range"):
        driver.release(held)
