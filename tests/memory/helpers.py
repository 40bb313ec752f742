"""Small plans, a driver that fails on demand, and the kernel's own view of an address."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from vamp.errors import DriverError
from vamp.memory.addresses import Addresses
from vamp.memory.driver import Access, Guard, Handle
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.geometry import ExpertGeometry, KvGeometry, PoolPlan
from vamp.memory.ledger import Ledger
from vamp.memory.region import Region, bytes_at
from vamp.memory.remapper import Remapper
from vamp.memory.spans import ShardRange

PAGE = 4096
SMALL = PoolPlan(
    # Groups of 4 shards in 6 + 3 pages; 10 shards are no whole number of groups, nor of pages (the second tensor).
    ExpertGeometry(n_layers=4, n_shards=10, tensor_bytes=(6144, 3072), resident_layers=1, page_bytes=PAGE),
    KvGeometry(page_bytes=6000, n_tensors=4, block_tok=16, vmm_page_bytes=PAGE),
    base_blk=5,
    limit_groups=6,
    increment_groups=1,
)
_libc = ctypes.CDLL(None, use_errno=True)


@st.composite
def small_plans(draw: st.DrawFn) -> PoolPlan:
    """Any plan that fits into a few hundred pages."""
    eligible, resident = draw(st.integers(1, 4)), draw(st.integers(0, 2))
    experts = ExpertGeometry(
        n_layers=eligible + resident,
        n_shards=draw(st.integers(1, 12)),
        tensor_bytes=tuple(1024 * n for n in draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))),
        resident_layers=resident,
        page_bytes=PAGE,
    )
    kv = KvGeometry(draw(st.integers(500, 3 * PAGE)), draw(st.integers(1, 5)), 16, PAGE)
    most = experts.n_shards // experts.shards_per_group * eligible
    return PoolPlan(experts, kv, draw(st.integers(2, 9)), draw(st.integers(0, most)), draw(st.integers(1, 3)))


class FailingDriver:
    """The real driver, but calls number `fail_at` (from 1, counted since `arm`) raise `error` and do nothing."""

    def __init__(self, inner: MemfdDriver, error: type[BaseException] = DriverError) -> None:
        self.inner, self.error = inner, error
        self.calls, self.fail_at = 0, frozenset[int]()

    def arm(self, fail_at: Collection[int] = ()) -> None:
        self.calls, self.fail_at = 0, frozenset(fail_at)

    def _count(self, call: str) -> None:
        self.calls += 1
        if self.calls in self.fail_at:
            raise self.error(f"{call}: made to fail at call {self.calls}")

    @property
    def granularity(self) -> int:
        return self.inner.granularity

    def reserve(self, nbytes: int, guard: Guard = Guard.HOLE) -> int:
        self._count("reserve")
        return self.inner.reserve(nbytes, guard)

    def release(self, address: int) -> None:
        self._count("release")
        self.inner.release(address)

    def create(self, nbytes: int) -> Handle:
        self._count("create")
        return self.inner.create(nbytes)

    def destroy(self, handle: Handle) -> None:
        self._count("destroy")
        self.inner.destroy(handle)

    def map(self, handle: Handle, address: int) -> None:
        self._count("map")
        self.inner.map(handle, address)

    def unmap(self, address: int) -> None:
        self._count("unmap")
        self.inner.unmap(address)

    def protect(self, address: int, nbytes: int, access: Access) -> None:
        self._count("protect")
        self.inner.protect(address, nbytes, access)

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        self._count("fill")
        self.inner.fill(address, nbytes, byte)

    def tensor(self, region: Region, dtype: Any, shape: Sequence[int]) -> Any:
        return self.inner.tensor(region, dtype, shape)


def readable(address: int) -> bool:
    """Ask the kernel to read one byte there: EFAULT where this process would get SIGSEGV."""
    out, into = os.pipe()
    try:
        if _libc.write(into, ctypes.c_void_p(address), ctypes.c_size_t(1)) == 1:
            return True
        assert ctypes.get_errno() == errno.EFAULT
        return False
    finally:
        os.close(out)
        os.close(into)


def page_mappings() -> int:
    """Mappings of any memfd driver's pages in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:vamp-pages")


def kernel_mappings(driver: MemfdDriver) -> dict[int, int]:
    """What the kernel says: address of every mapped page of this driver -> its offset in the file."""
    inode = str(os.fstat(driver._fd).st_ino)
    pages: dict[int, int] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, found, *_ = line.split()
        if found == inode and "memfd:vamp-pages" in line:
            start, end = (int(part, 16) for part in span.split("-"))
            pages |= {at: int(offset, 16) + at - start for at in range(start, end, PAGE)}
    return pages


def ledger_mappings(ledger: Ledger, addresses: Addresses) -> dict[int, int]:
    """The same by the ledger. A memfd handle is the offset of its first page."""
    return {
        addresses.pages(place, 1).address + i * PAGE: int(run.handle) + i * PAGE
        for place, run in ledger.mapped.items()
        for i in range(run.n_pages)
    }


def run_python(code: str) -> int:
    """Exit status of a fresh interpreter that runs `code` with a driver `d` of 4-KiB pages."""
    setup = (
        "from vamp.memory.driver import Access, Guard\n"
        "from vamp.memory.drivers.memfd import MemfdDriver\n"
        "from vamp.memory.region import Region, bytes_at\n"
        "d = MemfdDriver(4096)\n"
    )
    root = Path(__file__).parents[2]
    # A faulting test must not leave a core file behind.
    nocore = "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    done = subprocess.run([sys.executable, "-c", nocore + setup + code], cwd=root, capture_output=True, timeout=60)
    assert done.returncode in (0, -signal.SIGSEGV), done.stderr.decode()
    return done.returncode


class Host:
    """Host copies of all experts, and the copies that a worker makes from them."""

    def __init__(self, plan: PoolPlan, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        experts = plan.experts
        self.plan = plan
        self.tensors = {
            (layer, t): rng.integers(0, 256, experts.n_shards * b, dtype=np.uint8)
            for layer in range(experts.n_layers)
            for t, b in enumerate(experts.tensor_bytes)
        }

    def part(self, shards: ShardRange, tensor: int) -> NDArray[np.uint8]:
        size = self.plan.experts.tensor_bytes[tensor]
        return self.tensors[shards.layer, tensor][shards.first * size : shards.last * size]

    def load(self, remapper: Remapper, shards: Sequence[ShardRange]) -> None:
        """Into the experts' own addresses: at start, and after a restore."""
        for r in shards:
            for t in range(len(self.plan.experts.tensor_bytes)):
                bytes_at(remapper.addresses.expert(r.layer, t, r.first, r.last))[:] = self.part(r, t)

    def load_all(self, remapper: Remapper) -> None:
        n = self.plan.experts.n_shards
        self.load(remapper, [ShardRange(layer, 0, n) for layer in range(self.plan.experts.n_layers)])

    def stage(self, remapper: Remapper, layer: int) -> None:
        """The layer's offloaded shards into its staging buffer, before it runs."""
        r = remapper.offloaded(layer)
        if r.first < r.last:
            for t in range(len(self.plan.experts.tensor_bytes)):
                bytes_at(remapper.addresses.staging(layer, t, r.first, r.last))[:] = self.part(r, t)

    def as_kernels_read(self, remapper: Remapper, layer: int) -> bool:
        """Whether every expert of the layer reads at its own address as on the host."""
        return all(
            np.array_equal(bytes_at(remapper.addresses.expert(layer, t)), self.tensors[layer, t])
            for t in range(len(self.plan.experts.tensor_bytes))
        )


def kv_pages(plan: PoolPlan, n_groups: int) -> list[int]:
    """Pages of each KV tensor, counted without the code under test: deal one page after another."""
    pages = [-(-plan.base_blk * plan.kv.page_bytes // PAGE)] * plan.kv.n_tensors
    for k in range(n_groups * plan.experts.pages_per_group):
        pages[k % plan.kv.n_tensors] += 1
    return pages


def kv_view(remapper: Remapper, plan: PoolPlan, tensor: int) -> np.ndarray:
    """All bytes of a KV tensor that pages back."""
    return bytes_at(Region(remapper.addresses.kv(tensor).address, kv_pages(plan, remapper.n_groups)[tensor] * PAGE))
