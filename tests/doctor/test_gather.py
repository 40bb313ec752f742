"""Looking at this host and at made-up /sys folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vamp.cli import main
from vamp.doctor.facts import Link
from vamp.doctor.gather import link_of, need_of, node_cpus
from vamp.errors import ConfigError
from vamp.paths import data_dir


def test_link_from_sys(tmp_path: Path) -> None:
    files = {
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_speed": "Unknown",
        "max_link_width": "255",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    assert link_of(tmp_path) == Link(32.0, 16, None, None)
    assert link_of(tmp_path / "none") == Link()


def test_nodes_from_sys(tmp_path: Path) -> None:
    for node, cpus in (("node0", "0-3,8"), ("node1", "4-7"), ("node2", "")):
        folder = tmp_path / "devices/system/node" / node
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    assert node_cpus(tmp_path) == {0: frozenset({0, 1, 2, 3, 8}), 1: frozenset({4, 5, 6, 7})}
    assert node_cpus(tmp_path / "none") == {}


def test_host_copies_of_a_model() -> None:
    """Table II's arithmetic: 10.46 GiB a rank at 15 %."""
    need = need_of(data_dir() / "models" / "qwen3-next-80b", (15.0,), tp=2)
    assert need.gib[15.0] == pytest.approx(2 * 10.46, abs=0.02)
    with pytest.raises(ConfigError, match=r"no readable config\.json"):
        need_of(data_dir(), (15.0,), 1)


@pytest.mark.slow
def test_doctor_here(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole command on this host; --strict is no milder."""
    status = main(["doctor", "--json", "--model", str(data_dir() / "models" / "tiny-qwen3-next")])
    found = json.loads(capsys.readouterr().out)
    assert status == (0 if found["can_run"] else 1)
    assert {"backend sim", "backend cpu", "backend cuda", "host memory", "disk"} <= {
        f["what"] for f in found["findings"]
    }
    strict = main(["doctor", "--json", "--strict"])
    again = json.loads(capsys.readouterr().out)
    warned = any(f["level"] == "warn" for f in again["findings"])
    assert strict == (1 if warned or not again["can_run"] else 0)
