"""`vamp run --backend cpu` when things go wrong: one clear line, no process left over, no half-written result.

A run's processes have the run store's place in their environment, or are in the session of one that has: vLLM's engine
and workers write their titles over theirs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.experiments.conftest import alive, start_python, wait_until
from vamp.errors import ConfigError
from vamp.experiments.progress import PROGRESS_FILE, read_progress
from vamp.experiments.spec import make_spec
from vamp.live.run import run_live
from vamp.live.server import HOST

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(900),
]
START_S = 600.0
"""Until a replay is under way, on a machine that does other things too."""
STORE_BYTES = 128 * 2**10


class Trial:
    """One `vamp run` in a process group of its own, over a store of its own."""

    def __init__(self, tmp: Path, *argv: str, runs: Path | None = None) -> None:
        self.runs, self.progress = runs or tmp / "runs", tmp / "progress.json"
        temp = tmp / "tmp"
        temp.mkdir()
        self.mark = f"VAMP_RUNS={self.runs}".encode()
        self.sessions: set[int] = set()
        self.process = start_python(
            "import sys; from vamp.cli import main; sys.exit(main())",
            "run",
            *argv,
            env={**os.environ, "VAMP_RUNS": str(self.runs), PROGRESS_FILE: str(self.progress), "TMPDIR": str(temp)},
        )

    def pids(self, title: str = "") -> list[int]:
        """Its living processes whose command line contains `title`."""
        commands: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and alive(pid := int(entry.name)):
                    commands[pid] = (entry / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
                    if self.mark in (entry / "environ").read_bytes():
                        self.sessions.add(os.getsid(pid))
        return [pid for pid, command in commands.items() if title in command and _session(pid) in self.sessions]

    def wait_for_turns(self, n: int) -> None:
        deadline_s = time.monotonic() + START_S
        while (seen := read_progress(self.progress)) is None or seen.turns_done < n:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline_s, "the replay did not begin"
            time.sleep(0.2)
        self.pids()  # remembers their sessions

    def end(self) -> tuple[int, str, str]:
        """Exit status, stdout, and the last line of stderr; nothing may be left a moment later."""
        out, err = self.process.communicate(timeout=START_S)
        assert "Traceback" not in err
        wait_until(lambda: not self.pids(), within_s=10)  # Python's own helper processes end when they notice
        wait_until(lambda: not _group_exists(self.process.pid))  # ended ones are collected by process 1
        assert list(self.runs.glob(".tmp-*")) == []
        return self.process.returncode, out, err.splitlines()[-1]

    @property
    def stored(self) -> list[Path]:
        return list(self.runs.glob("*/run.json"))


def _group_exists(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    return True


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    trials: list[Trial] = []

    def start(*argv: str, runs: Path | None = None) -> Trial:
        trials.append(Trial(tmp_path, *argv, runs=runs))
        return trials[-1]

    yield start
    for one in trials:  # after a failed test
        for pid in one.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("title", "said"),
    [("VLLM::Worker", "Worker proc VllmWorker-0 died"), ("vamp.engine.server", "was killed (SIGKILL)")],
    ids=["worker", "server"],
)
def test_killed_in_the_middle(trial: Callable[..., Trial], title: str, said: str) -> None:
    one = trial("replay", "--backend", "cpu", "--json")
    one.wait_for_turns(3)
    victims = [pid for pid in one.pids(title) if pid not in one.pids("keeper.py")]
    assert len(victims) == 1
    os.kill(victims[0], signal.SIGKILL)
    status, out, line = one.end()
    assert (status, out) == (1, "")
    assert line.startswith("vamp: the server ") and said in line and " of 533 turns" in line
    assert one.stored == []


def test_ctrl_c(trial: Callable[..., Trial]) -> None:
    one = trial("replay", "--backend", "cpu", "--json")
    one.wait_for_turns(3)
    assert len(one.pids("VLLM::")) == 2  # what must be gone below
    os.killpg(one.process.pid, signal.SIGINT)
    status, out, line = one.end()
    assert (status, out, line) == (130, "", "vamp: interrupted")
    assert one.stored == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little space."""
    folder = tmp_path / "small"
    folder.mkdir()
    options = f"size={STORE_BYTES}"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_full_disk(trial: Callable[..., Trial], small_disk: Path) -> None:
    (small_disk / "filling").write_bytes(bytes(STORE_BYTES - 16 * 2**10))
    one = trial("sweep", "--backend", "cpu", "--concurrency", "1", "--json", runs=small_disk)
    one.wait_for_turns(3)
    status, out, line = one.end()
    assert (status, out) == (1, "")
    assert line.startswith(f"vamp: cannot store runs in {small_disk}: ") and "No space left on device" in line
    assert one.stored == []
    assert {p.name for p in small_disk.iterdir()} == {"filling", ".locks"}


def test_taken_port() -> None:
    spec = make_spec(backend="cpu", platform="cpu_tiny_moe", workload={"kind": "inhouse", "concurrency": 1})
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^port {port} of {HOST} cannot be used"):
            run_live(spec, port=port)
