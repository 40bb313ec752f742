"""A run store of its own for every test, and a tiny engine for the tests of the runner."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from vamp.experiments.spec import RunSpec, make_spec

DEADLINE_S = 120.0  # for other processes to get somewhere; machines may be busy
STUB = Path(__file__).parent / "stub"


def interruptible() -> None:
    """For a child's `preexec_fn`: a test run in the background ignores Ctrl-C, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start_python(
    code: str, *argv: str, stderr: int = subprocess.PIPE, env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """`python -c CODE ARGV...` in a session of its own, which Ctrl-C ends."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *argv],
        env=env,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
        preexec_fn=interruptible,
    )


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """The empty run store of this test."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("VAMP_RUNS", str(folder))
    return folder


class StubLog:
    """What the stub engine ran, in order of start."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _column(self, index: int) -> list[str]:
        return [line.split()[index] for line in self.path.read_text().splitlines()] if self.path.exists() else []

    @property
    def seeds(self) -> list[int]:
        return [int(seed) for seed in self._column(0)]

    @property
    def pids(self) -> list[int]:
        return [int(pid) for pid in self._column(1)]

    @property
    def starts_s(self) -> list[float]:
        return [float(start) for start in self._column(3)]

    @property
    def threads(self) -> set[str]:
        return set(self._column(2))


@pytest.fixture
def stub(runs, tmp_path, monkeypatch) -> StubLog:
    """Workers run `stub_engine`, not the simulator: the runner is under test, not the engine."""
    log = tmp_path / "stub.log"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STUB), str(STUB.parent.parent.parent)]))
    monkeypatch.setenv("STUB_LOG", str(log))
    return StubLog(log)


def spec(seed: int = 0, **fields: object) -> RunSpec:
    return make_spec(seed=seed, workload={"kind": "inhouse", "concurrency": 2}, **fields)


PARAMETERS = "ratio: float = 15.0\nseed = 0\ntrace = ''\nbackend = 'sim'\nrepeats = 1\nratios = [15, 20]\nfast = False"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout without notebooks; `checkout(stem, *cells)` adds one."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "paper_values.yaml").touch()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("VAMP_HOME", str(tmp_path))

    def add(stem, *cells, parameters=PARAMETERS):
        nb = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
        nb.metadata["language_info"] = {"name": "python"}
        nb.cells = [nbformat.v4.new_code_cell(cell) for cell in (parameters, *cells)]
        nb.cells[0].metadata["tags"] = ["parameters"] if parameters else []
        path = tmp_path / "notebooks" / f"{stem}.ipynb"
        nbformat.write(nb, path)
        return path

    return add


def printed(path):
    """Everything that the cells of an executed notebook printed."""
    cells = nbformat.read(path, as_version=4).cells
    return "".join(o.get("text", "") for c in cells for o in c.get("outputs", []))


def wait_until(condition, within_s=DEADLINE_S):
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def alive(pid):
    """A running process; one that ended and was not collected by its parent does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
