"""Which processors are near a device, as the system tells it; the memory itself is tested in tests/gpu."""

from __future__ import annotations

from pathlib import Path

import pytest

pinned = pytest.importorskip("vamp.staging.cuda.pinned", reason="cuda-bindings is not installed", exc_type=ImportError)

DEVICE = "0000:1b:00.0"


def system(tmp_path: Path, node: str, cpulist: str) -> Path:
    device, nodes = tmp_path / "bus/pci/devices" / DEVICE, tmp_path / "devices/system/node/node1"
    device.mkdir(parents=True)
    nodes.mkdir(parents=True)
    (device / "numa_node").write_text(node)
    (nodes / "cpulist").write_text(cpulist)
    return tmp_path


def test_the_nodes_processors(tmp_path: Path) -> None:
    assert pinned.near_cpus("0000:1B:00.0", system(tmp_path, "1\n", "4-6,9\n")) == {4, 5, 6, 9}


@pytest.mark.parametrize(("node", "cpulist"), [("-1\n", "0-3"), ("0\n", "0-3"), ("1\n", ""), ("x", "0")])
def test_no_answer_is_no_preference(tmp_path: Path, node: str, cpulist: str) -> None:
    assert pinned.near_cpus(DEVICE, system(tmp_path, node, cpulist)) == frozenset()


def test_an_unknown_device_is_no_preference(tmp_path: Path) -> None:
    assert pinned.near_cpus(DEVICE, tmp_path) == frozenset()
