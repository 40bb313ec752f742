"""Runs as tasks of a Ray cluster of two nodes on this machine; the engine is the stub."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vamp.errors import CapacityError, ConfigError, RunError
from vamp.experiments import cluster
from vamp.experiments.ensure import ensure
from vamp.measure.summary import summarise

from .conftest import STUB, StubLog, alive, spec, wait_until
from .stub_engine import BREAKS, HANGS, LASTS, LASTS_TOO, REFUSES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")]
ray_cluster = pytest.importorskip("ray.cluster_utils", reason="ray is not installed: pip install ray")


def silent(_line: str) -> None: ...


class TwoNodes:
    stub: StubLog

    def __init__(self) -> None:
        self.cluster = ray_cluster.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        self.second = self.cluster.add_node(num_cpus=1)

    def lose_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)


@contextmanager
def two_nodes(folder: Path) -> Iterator[TwoNodes]:
    """Two nodes with one core each, whose engine is the stub; runs go there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(STUB), str(STUB.parent.parent.parent)]))
        patch.setenv("STUB_LOG", str(folder / "stub.log"))
        patch.setenv("RAY_raylet_start_wait_time_s", "120")
        patch.setenv("RAY_health_check_period_ms", "1000")
        try:
            pair = TwoNodes()
        except Exception as err:  # Ray's own processes: no part of what is tested
            pytest.skip(f"no Ray cluster starts here: {str(err).splitlines()[0]}")
        pair.stub = StubLog(folder / "stub.log")
        patch.setenv(cluster.ADDRESS, pair.cluster.address)
        try:
            yield pair
        finally:
            pair.cluster.shutdown()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> Iterator[TwoNodes]:
    with two_nodes(tmp_path_factory.mktemp("nodes")) as pair:
        yield pair


def test_the_store_ends_as_after_local_runs(nodes, runs, tmp_path, monkeypatch):
    stub = nodes.stub
    far = ensure([spec(0), spec(1), spec(0)], report=silent)
    folders = sorted(path.name for path in runs.iterdir() if not path.name.startswith("."))
    assert sorted(stub.seeds) == [0, 1] and os.getpid() not in stub.pids
    monkeypatch.delenv(cluster.ADDRESS)
    assert [r.meta["seed"] for r in ensure([spec(0), spec(1)], report=silent)] == [0, 1]
    assert sorted(stub.seeds) == [0, 1], "what the cluster ran is stored here"
    monkeypatch.setenv("VAMP_RUNS", str(tmp_path / "local"))
    near = ensure([spec(0), spec(1), spec(0)], report=silent)
    assert sorted(path.name for path in (tmp_path / "local").iterdir() if not path.name.startswith(".")) == folders
    assert [summarise(r, spec(0)).as_json() for r in far] == [summarise(r, spec(0)).as_json() for r in near]
    assert not list(runs.glob(".tmp-*"))

    monkeypatch.setenv("VAMP_RUNS", str(runs))
    monkeypatch.setenv(cluster.ADDRESS, nodes.cluster.address)
    with pytest.raises(CapacityError, match="needs 10 tokens"):
        ensure([spec(REFUSES)], report=silent)
    with pytest.raises(RunError, match="ZeroDivisionError: an engine defect"):
        ensure([spec(BREAKS)], report=silent)


def test_ctrl_c_leaves_nothing_running(nodes, runs):
    stub = nodes.stub

    def interrupt() -> None:
        wait_until(lambda: HANGS in stub.seeds)
        os.kill(os.getpid(), 2)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        ensure([spec(HANGS)], report=silent)
    wait_until(lambda: not alive(stub.pids[-1]))
    assert not [path for path in runs.iterdir() if not path.name.startswith(".locks")]


def test_needs_are_the_platforms():
    assert cluster.demands(spec()) == {"num_cpus": 1, "num_gpus": 0}
    for platform, gpus in (("h200_tp2_rank", 1), ("h100_pcie_tp2", 2), ("h200_nvl_tp4", 4)):
        assert cluster.demands(spec(backend="cuda", platform=platform))["num_gpus"] == gpus


def test_no_cluster_and_no_ray_are_one_line_each(runs, monkeypatch):
    monkeypatch.setenv(cluster.ADDRESS, "127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        ensure([spec()], report=silent)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="pip install ray"):
        ensure([spec()], report=silent)


def test_another_version_of_the_code_is_refused(runs):
    with pytest.raises(ConfigError, match="another version of vamp"):
        cluster.run_there(spec().model_dump_json(), "0" * 64)


def test_the_command_says_what_the_cluster_has(nodes, checkout):
    checkout("01_runs", "print('done')")
    command = [str(Path(sys.executable).parent / "vamp"), "reproduce", "01_runs", "--ray", nodes.cluster.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "runs go to the Ray cluster: 2 cores, 0 GPUs" in done.stdout


def test_a_lost_node_costs_only_time(runs, tmp_path):
    with two_nodes(tmp_path) as nodes:
        lose_one(nodes)


def lose_one(nodes: TwoNodes) -> None:
    stub, seeds = nodes.stub, [LASTS, LASTS_TOO, 1]

    def lose_it_at_work() -> None:
        while len(stub.seeds) < 2:
            time.sleep(0.02)
        nodes.lose_second()

    loser = threading.Thread(target=lose_it_at_work)
    loser.start()
    results = ensure([spec(seed) for seed in seeds], report=silent)
    loser.join()
    assert [r.meta["seed"] for r in results] == seeds
    assert len(stub.seeds) == len(seeds) + 1, "the run of the lost node was started again, and no other"
