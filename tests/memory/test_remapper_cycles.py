"""A hundred times to and fro: nothing is lost, nothing leaks."""

import hashlib
import random
import re
from dataclasses import dataclass
from pathlib import Path

from tests.memory.helpers import Host
from vamp.memory.driver import Access
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.geometry import ExpertGeometry, KvGeometry, PoolPlan
from vamp.memory.region import bytes_at
from vamp.memory.remapper import Remapper

LONG = PoolPlan(
    ExpertGeometry(n_layers=5, n_shards=12, tensor_bytes=(128 * 1024, 64 * 1024), page_bytes=64 * 1024),
    KvGeometry(page_bytes=200_000, n_tensors=3, block_tok=16, vmm_page_bytes=64 * 1024),
    base_blk=20,
    limit_groups=24,
)


@dataclass(frozen=True)
class Memory:
    """Resident bytes of the process, of its shared pages alone, and what the system holds for the driver."""

    rss: int
    shared: int
    physical: int

    @classmethod
    def now(cls, driver: MemfdDriver) -> "Memory":
        status = dict(re.findall(r"(\w+):\s+(\d+) kB", Path("/proc/self/status").read_text()))
        return cls(int(status["VmRSS"]), int(status["RssShmem"]), driver.physical_bytes())


def checksum(host: Host) -> str:
    digest = hashlib.sha256()
    for key in sorted(host.tensors):
        digest.update(host.tensors[key])
    return digest.hexdigest()


def cycles(driver: MemfdDriver, n_cycles: int, leak_bytes: int = 0) -> list[Memory]:
    """Grow, use, shrink, reload, again and again; the memory after each cycle."""
    remapper, host, rng = Remapper(LONG, driver), Host(LONG), random.Random(0)
    host.load_all(remapper)
    before, holdings, seen = checksum(host), remapper.holdings, []
    for _ in range(n_cycles):
        for n in sorted(rng.sample(range(1, 25), 3)):
            remapper.remap(n)
        for tensor in range(3):
            region = remapper.addresses.kv(tensor)
            bytes_at(region.part(0, remapper.capacity_blk * 200_000))[:] = rng.randrange(256)
        for layer in range(5):
            host.stage(remapper, layer)
            assert host.as_kernels_read(remapper, layer)
        for n in (rng.randrange(remapper.n_groups), 0):
            host.load(remapper, remapper.remap(n))
        if leak_bytes:
            address = driver.reserve(leak_bytes)
            driver.map(driver.create(leak_bytes), address)
            driver.protect(address, leak_bytes, Access.READ_WRITE)
            driver.fill(address, leak_bytes, 1)
        remapper.check()
        seen.append(Memory.now(driver))
    assert remapper.holdings == holdings
    assert all(host.as_kernels_read(remapper, layer) for layer in range(5))
    assert checksum(host) == before
    host.tensors[3, 1][5] ^= 1
    assert checksum(host) != before and not host.as_kernels_read(remapper, 3)
    remapper.close()
    return seen


def test_a_hundred_cycles_conserve_pages_and_memory() -> None:
    driver = MemfdDriver(64 * 1024)
    seen = cycles(driver, 100)
    assert len({m.physical for m in seen}) == 1
    assert max(m.rss for m in seen) < 1.02 * min(m.rss for m in seen)
    assert max(m.shared for m in seen) < 1.02 * min(m.shared for m in seen)
    driver.close()


def test_a_leak_of_two_pages_a_cycle_would_be_seen() -> None:
    driver = MemfdDriver(64 * 1024)
    seen = cycles(driver, 20, leak_bytes=2 * 64 * 1024)
    assert max(m.shared for m in seen) > 1.02 * min(m.shared for m in seen)
    assert seen[-1].physical - seen[0].physical == 19 * 2 * 64 * 1024
    driver.close()
