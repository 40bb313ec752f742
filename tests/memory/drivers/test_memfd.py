"""The driver against the kernel: real faults, real sharing, real limits."""

import os
import signal

import numpy as np
import pytest

from tests.memory.helpers import PAGE, page_mappings, readable, run_python
from vamp.errors import AddressError, ConfigError, DriverError, OutOfPagesError
from vamp.memory.driver import Access, Guard, VmmDriver
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.region import Region, bytes_at

FAULT = -signal.SIGSEGV


def put(driver: MemfdDriver, n_pages: int, address: int) -> int:
    handle = driver.create(n_pages * PAGE)
    driver.map(handle, address)
    driver.protect(address, n_pages * PAGE, Access.READ_WRITE)
    return handle


def test_it_is_a_driver(driver: MemfdDriver) -> None:
    as_protocol: VmmDriver = driver
    assert as_protocol.granularity == PAGE


# faults, in processes of their own


def test_a_hole_faults_and_a_mapping_does_not() -> None:
    read = "print(bytes_at(Region(a, 1))[0])"
    put_page = "d.map(d.create(4096), a); d.protect(a, 4096, Access.READ_WRITE)\n"
    assert run_python(f"a = d.reserve(4096)\n{read}") == FAULT
    assert run_python(f"a = d.reserve(4096)\n{put_page}{read}") == 0
    assert run_python(f"a = d.reserve(4096)\n{put_page}d.unmap(a)\n{read}") == FAULT


def test_a_mapping_without_access_faults() -> None:
    assert run_python("a = d.reserve(4096); d.map(d.create(4096), a); bytes_at(Region(a, 1))[0]") == FAULT


@pytest.mark.parametrize(("access", "status"), [("READ", FAULT), ("READ_WRITE", 0)])
def test_protection_stops_writes(access: str, status: int) -> None:
    code = "a = d.reserve(4096); d.map(d.create(4096), a); d.protect(a, 4096, Access.{})\nx = bytes_at(Region(a, 1))\n"
    assert run_python(code.format(access) + "x[0]") == 0
    assert run_python(code.format(access) + "x[0] = 1") == status


@pytest.mark.parametrize("guard", ["POISON", "ZERO"])
def test_guards_can_be_read_but_not_written(guard: str) -> None:
    view = f"x = bytes_at(Region(d.reserve(4096, Guard.{guard}), 4096))\n"
    assert run_python(view + "x.sum()") == 0
    assert run_python(view + "x[0] = 1") == FAULT


# guards


@pytest.mark.parametrize(("guard", "byte"), [(Guard.POISON, 0xFF), (Guard.ZERO, 0)])
def test_guards_show_their_byte_before_and_after_a_mapping(driver: MemfdDriver, guard: Guard, byte: int) -> None:
    base = driver.reserve(3 * PAGE, guard)
    view = bytes_at(Region(base, 3 * PAGE))
    assert np.all(view == byte)
    put(driver, 1, base + PAGE)
    view[PAGE : 2 * PAGE] = 7
    assert [int(v) for v in view[[0, PAGE, 2 * PAGE]]] == [byte, 7, byte]
    driver.unmap(base + PAGE)
    assert np.all(view == byte)


def test_poison_is_nan(driver: MemfdDriver) -> None:
    import torch

    big = 3 * 2**20  # more than one piece of the poison file
    base = driver.reserve(big, Guard.POISON)
    assert driver.tensor(Region(base, big), torch.bfloat16, (big // 2,)).isnan().all()


# moving and sharing


def test_contents_travel_with_the_handle(driver: MemfdDriver) -> None:
    first, second = driver.reserve(PAGE), driver.reserve(2 * PAGE)
    handle = put(driver, 1, first)
    bytes_at(Region(first, PAGE))[:] = 42
    driver.unmap(first)
    driver.map(handle, second + PAGE)
    driver.protect(second + PAGE, PAGE, Access.READ)
    assert np.all(bytes_at(Region(second + PAGE, PAGE)) == 42)
    assert not readable(first) and not readable(second)


def test_an_alias_is_the_same_memory(driver: MemfdDriver) -> None:
    base = driver.reserve(6 * PAGE)
    handle = put(driver, 2, base)
    put(driver, 2, base + 4 * PAGE)
    driver.map(handle, base + 2 * PAGE)
    driver.protect(base + 2 * PAGE, 2 * PAGE, Access.READ_WRITE)
    view = bytes_at(Region(base, 6 * PAGE))
    view[: 2 * PAGE] = np.arange(2 * PAGE) % 251
    assert np.array_equal(view[2 * PAGE : 4 * PAGE], view[: 2 * PAGE])
    assert not view[4 * PAGE :].any()
    driver.unmap(base)
    view[2 * PAGE] = 99
    driver.map(handle, base)
    driver.protect(base, 4 * PAGE, Access.READ)
    assert view[0] == 99


def test_protect_spans_neighbours(driver: MemfdDriver) -> None:
    base = driver.reserve(3 * PAGE)
    for i in range(3):
        driver.map(driver.create(PAGE), base + i * PAGE)
    assert not readable(base)
    driver.protect(base, 3 * PAGE, Access.READ)
    assert all(readable(base + i * PAGE) for i in range(3))
    driver.protect(base + PAGE, PAGE, Access.NONE)
    assert [readable(base + i * PAGE) for i in range(3)] == [True, False, True]


def test_fill(driver: MemfdDriver) -> None:
    base = driver.reserve(PAGE)
    put(driver, 1, base)
    driver.fill(base + 1, 2, 0xAB)
    assert bytes_at(Region(base, 4)).tolist() == [0, 0xAB, 0xAB, 0]


# physical memory


def test_memory_is_there_when_create_returns_and_gone_after_destroy(driver: MemfdDriver) -> None:
    handles = [driver.create(4 * PAGE) for _ in range(3)]
    assert driver.in_use_bytes == driver.physical_bytes() == 12 * PAGE
    driver.destroy(handles[1])
    assert driver.in_use_bytes == driver.physical_bytes() == 8 * PAGE
    assert driver.create(PAGE) not in handles


def test_reserving_costs_no_memory(driver: MemfdDriver) -> None:
    driver.reserve(64 * 2**30)
    assert driver.physical_bytes() == 0


def test_the_capacity_is_a_limit() -> None:
    driver = MemfdDriver(PAGE, capacity_bytes=3 * PAGE)
    kept = driver.create(2 * PAGE)
    with pytest.raises(OutOfPagesError, match=f"{2 * PAGE} B; the limit is {PAGE} B"):
        driver.create(2 * PAGE)
    driver.create(PAGE)
    driver.destroy(kept)
    driver.create(2 * PAGE)
    driver.close()


def test_more_than_the_machine_has_is_refused_before_anything_is_taken(driver: MemfdDriver) -> None:
    with pytest.raises(OutOfPagesError, match="no memory left"):
        driver.create(2**50)
    assert driver.physical_bytes() == 0


def test_the_systems_own_refusal_is_named() -> None:
    code = """
import resource
from vamp.errors import OutOfPagesError
resource.setrlimit(resource.RLIMIT_FSIZE, (8 * 4096, 8 * 4096))
kept = d.create(6 * 4096)
try:
    d.create(4 * 4096)
    raise SystemExit("was not refused")
except OutOfPagesError as err:
    assert "File too large" in str(err), err
assert d.in_use_bytes == d.physical_bytes() == 6 * 4096
d.create(4096)
"""
    assert run_python(code) == 0


@pytest.mark.parametrize("gap", [1, 2])
def test_the_mapping_limit_is_named(gap: int) -> None:
    """Side by side, the driver refuses while pages can still go back; with holes between, the kernel refuses."""
    code = f"""
from pathlib import Path
from vamp.errors import DriverError
from vamp.memory.drivers.memfd import SPARE_MAPPINGS
most = int(Path("/proc/sys/vm/max_map_count").read_text())
if most > 200_000:
    raise SystemExit(0)
base, page, n = d.reserve({gap} * most * 4096), d.create(4096), 0
try:
    while n < most:
        d.map(page, base + {gap} * n * 4096)
        n += 1
    raise SystemExit("the limit was never met")
except DriverError as err:
    assert "too many mappings" in str(err) and f"vm.max_map_count, which is {{most}}" in str(err), err
if {gap} == 1:
    assert n == most - SPARE_MAPPINGS
    for i in range(n):
        d.unmap(base + i * 4096)
    d.map(page, base)
"""
    assert run_python(code) == 0


def test_address_space_that_cannot_be_had_is_named(driver: MemfdDriver) -> None:
    with pytest.raises(DriverError, match=r"reserve: .*errno"):
        driver.reserve(2**60)


# rules


@pytest.mark.parametrize("granularity", [0, 1000, PAGE + 1, -PAGE])
def test_a_granularity_that_the_system_lacks_is_refused(granularity: int) -> None:
    with pytest.raises(ConfigError, match=f"multiple of the system's {os.sysconf('SC_PAGE_SIZE')} B"):
        MemfdDriver(granularity)


def test_larger_pages_are_aligned() -> None:
    driver = MemfdDriver(64 * 1024)
    bases = [driver.reserve(64 * 1024) for _ in range(20)]
    assert all(base % (64 * 1024) == 0 for base in bases)
    driver.map(driver.create(128 * 1024), driver.reserve(128 * 1024))
    with pytest.raises(AddressError, match="whole number of pages"):
        driver.create(PAGE)
    driver.close()


def test_a_refused_call_changes_nothing(driver: MemfdDriver) -> None:
    base = driver.reserve(2 * PAGE)
    handle = put(driver, 1, base)
    bytes_at(Region(base, PAGE))[:] = 5
    for refused in (
        lambda: driver.map(handle, base),
        lambda: driver.map(driver.create(2 * PAGE), base + PAGE),
        lambda: driver.unmap(base + PAGE),
        lambda: driver.protect(base, 2 * PAGE, Access.NONE),
        lambda: driver.destroy(handle),
        lambda: driver.release(base),
        lambda: driver.release(base + PAGE),
    ):
        with pytest.raises(AddressError):
            refused()
    assert np.all(bytes_at(Region(base, PAGE)) == 5)
    assert not readable(base + PAGE)


def test_everything_goes_back() -> None:
    before = page_mappings()
    driver = MemfdDriver(PAGE)
    base = driver.reserve(PAGE, Guard.POISON)
    handle = put(driver, 1, base)
    assert page_mappings() == before + 1
    driver.unmap(base)
    driver.destroy(handle)
    driver.release(base)
    assert not readable(base)
    assert (page_mappings(), driver.physical_bytes(), driver.in_use_bytes) == (before, 0, 0)
    driver.close()
    driver.close()


def test_close_gives_back_what_is_still_mapped() -> None:
    driver = MemfdDriver(PAGE)
    base = driver.reserve(PAGE)
    put(driver, 1, base)
    assert readable(base)
    driver.close()
    assert not readable(base)
    assert driver.in_use_bytes == 0
