"""The CUDA driver keeps the rules of `VmmDriver`, and says in one line when a call cannot be done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from vamp.errors import AddressError, ConfigError, DriverError, OutOfPagesError
from vamp.memory.driver import Access, Guard
from vamp.memory.region import Region

if TYPE_CHECKING:
    import torch

    from vamp.memory.drivers.cuda import CudaDriver

PAGE = 2 * 2**20


@pytest.fixture
def driver() -> Iterator[CudaDriver]:
    import torch

    from vamp.memory.drivers.cuda import CudaDriver

    torch.cuda.set_device(0)
    made = CudaDriver(PAGE)
    yield made
    assert made.n_mappings == made.in_use_bytes == 0  # each test gives back what it takes


def as_bytes(driver: CudaDriver, address: int, nbytes: int) -> torch.Tensor:
    import torch

    return driver.tensor(Region(address, nbytes), torch.uint8, (nbytes,))


def test_one_handle_reads_the_same_at_two_addresses(driver: CudaDriver) -> None:
    base, handle, other = driver.reserve(4 * PAGE), driver.create(PAGE), driver.create(PAGE)
    assert base % PAGE == 0
    for run, at in ((handle, base), (handle, base + 2 * PAGE), (other, base + PAGE)):
        driver.map(run, at)
        driver.protect(at, PAGE, Access.READ_WRITE)
    driver.fill(base, PAGE, 7)
    driver.fill(base + PAGE, PAGE, 9)
    alias, neighbour = as_bytes(driver, base + 2 * PAGE, PAGE), as_bytes(driver, base + PAGE, PAGE)
    assert bool((alias == 7).all()) and bool((neighbour == 9).all())
    alias[5] = 8
    assert as_bytes(driver, base, PAGE)[:7].tolist() == [7, 7, 7, 7, 7, 8, 7]
    for page in range(3):
        driver.unmap(base + page * PAGE)
    driver.destroy(handle)
    driver.destroy(other)
    driver.release(base)


def test_contents_move_with_the_handle(driver: CudaDriver) -> None:
    base, handle = driver.reserve(3 * PAGE), driver.create(2 * PAGE)
    driver.map(handle, base)
    driver.protect(base, 2 * PAGE, Access.READ_WRITE)
    driver.fill(base, 2 * PAGE, 3)
    driver.unmap(base)
    driver.map(handle, base + PAGE)
    driver.protect(base + PAGE, 2 * PAGE, Access.READ_WRITE)
    assert bool((as_bytes(driver, base + PAGE, 2 * PAGE) == 3).all())
    driver.unmap(base + PAGE)
    driver.destroy(handle)
    driver.release(base)


def test_broken_rules_are_refused_and_change_nothing(driver: CudaDriver) -> None:
    import torch

    base, handle = driver.reserve(2 * PAGE), driver.create(PAGE)
    driver.map(handle, base)
    with pytest.raises(AddressError, match="handle in use"):
        driver.destroy(handle)
    with pytest.raises(AddressError, match="nothing is mapped"):
        driver.map(handle, base)
    with pytest.raises(AddressError, match="empty range"):
        driver.release(base)
    with pytest.raises(AddressError, match="no mapping starts here"):
        driver.unmap(base + PAGE)
    with pytest.raises(AddressError, match="whole number of pages"):
        driver.create(PAGE + 1)
    with pytest.raises(AddressError, match="does not fit"):
        driver.tensor(Region(base, PAGE), torch.uint8, (3,))
    driver.unmap(base)
    driver.destroy(handle)
    driver.release(base)


def test_more_than_the_device_has_is_refused(driver: CudaDriver) -> None:
    with pytest.raises(OutOfPagesError, match="no device memory left"):
        driver.create(2**44)


def test_the_drivers_own_refusal_is_one_line(driver: CudaDriver) -> None:
    with pytest.raises(DriverError, match=r"reserve: .*the limit is the driver's") as refused:
        driver.reserve(2**60)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("guard", [Guard.POISON, Guard.ZERO])
def test_other_guards_are_refused(driver: CudaDriver, guard: Guard) -> None:
    with pytest.raises(ConfigError, match="use 'hole'"):
        driver.reserve(PAGE, guard)


def test_pages_that_the_device_cannot_map_are_refused() -> None:
    from vamp.memory.drivers.cuda import CudaDriver

    for size in (0, 4096, 3 * PAGE):
        with pytest.raises(ConfigError, match="power of two"):
            CudaDriver(size)
