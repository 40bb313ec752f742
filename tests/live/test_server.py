"""The server's life and end, with a stand-in that is up in a moment. The real one: test_server_trials.py."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments.conftest import alive, start_python, wait_until
from vamp.errors import ConfigError, RunError
from vamp.live import server as module
from vamp.live.server import HOST, check_port, free_port, reason, serving

FAKE = Path(__file__).parent / "fake_server.py"


class Fake:
    """A stand-in server's command line, log and processes."""

    def __init__(self, tmp: Path, mode: str) -> None:
        self.port, self.log, self.pids_file = free_port(), tmp / "log.txt", tmp / "pids"
        self.command = [sys.executable, str(FAKE), mode, str(self.port), str(self.pids_file)]

    @property
    def pids(self) -> list[int]:
        return [int(pid) for pid in self.pids_file.read_text().split()] if self.pids_file.exists() else []

    @property
    def survivors(self) -> list[int]:
        assert len(self.pids) == 2
        return [pid for pid in self.pids if alive(pid)]

    def serving(self, **options: float):
        return serving(self.command, os.environ, self.log, port=self.port, **options)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 1.0)


def test_it_serves_and_leaves_nothing(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "serves")
    waits: list[float] = []
    with serving(fake.command, os.environ, fake.log, port=fake.port, on_wait=waits.append) as server:
        assert server.url == f"http://{HOST}:{fake.port}" and server.pid == fake.pids[0]
        assert server.healthy() and not server.ended
        assert len(fake.survivors) == 2  # the check below can fail
        assert os.getpgid(server.pid) == server.pid != os.getpgid(0)
    assert fake.survivors == [] and not server.healthy() and server.ended
    assert waits and waits == sorted(waits)


def test_an_error_in_the_block_is_passed_on_and_stops_it(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "serves")
    with pytest.raises(ZeroDivisionError), fake.serving():
        raise ZeroDivisionError
    assert fake.survivors == []


def test_one_that_ignores_sigterm_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "stubborn")
    with fake.serving():
        began = time.monotonic()
    assert fake.survivors == []
    assert 1.0 <= time.monotonic() - began < 10


def test_one_that_fails_says_why_at_once(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "fails")
    with pytest.raises(RunError) as caught, fake.serving():
        pytest.fail("it never served")
    text = str(caught.value)
    assert "ended with status 3" in text and "ValueError: the pool holds 3 blocks, 9 are needed;" in text
    assert str(fake.log) in text and "\n" not in text
    assert fake.survivors == []


def test_one_that_never_is_healthy_is_given_up(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "never")
    with pytest.raises(RunError, match=r"is not healthy after 2 s.*: loading;"), fake.serving(start_timeout_s=2.0):
        pytest.fail("it never served")
    assert fake.survivors == []


def test_one_that_is_killed_leaves_no_engine_behind(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "serves")
    with fake.serving() as server:
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: server.ended)
        assert fake.survivors == []
        assert "was killed (SIGKILL) in a test" in server.obituary("in a test")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_the_process_that_started_it(tmp_path: Path, end: signal.Signals) -> None:
    fake = Fake(tmp_path, "serves")
    code = f"""
import os, time
from pathlib import Path
from vamp.live.server import serving
with serving({fake.command!r}, os.environ, Path({str(fake.log)!r}), port={fake.port}):
    print("up", flush=True)
    time.sleep(600)
"""
    owner = start_python(code, stderr=subprocess.DEVNULL)
    assert owner.stdout is not None and owner.stdout.readline() == "up\n"
    assert len(fake.survivors) == 2
    os.killpg(owner.pid, end)  # the whole group, as a terminal does
    owner.wait(60)
    owner.stdout.close()
    wait_until(lambda: not fake.survivors)


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "serves")
    with socket.socket() as other:
        other.bind((HOST, fake.port))
        other.listen()
        refusal = rf"^port {fake.port} of {HOST} cannot be used \(Address already in use\)"
        with pytest.raises(ConfigError, match=refusal), fake.serving():
            pytest.fail("it never served")
    assert not fake.log.exists() and fake.pids == []
    check_port(fake.port)  # the negative control: now it is free


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_senseless_port_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=f"port {port} of"):
        check_port(port)


def test_a_command_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    missing = serving([str(tmp_path / "no-such-program")], os.environ, tmp_path / "log", port=free_port())
    with pytest.raises(RunError, match=r"could not be started: FileNotFoundError: .*no-such-program"), missing:
        pytest.fail("it never served")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a", "KeyError: 'x'", "RuntimeError: Engine core initialization failed. x", "end"], "KeyError: 'x'"),
        (["usage: x", "api_server.py: error: unrecognized arguments: --foo"], "error: unrecognized arguments: --foo"),
        (["(Worker pid=1) vamp.errors.ConfigError: vamp.ratio: y"], "ConfigError: vamp.ratio: y"),
        (["RuntimeError: Engine core initialization failed. x", "the end", ""], "the end"),
        (["ERROR: nothing that names an exception"], "ERROR: nothing that names an exception"),
        ([], "the log is empty"),
        (["WARNING: like `OSError: x`", "Fatal Python error: Illegal x"], "Fatal Python error: Illegal x"),
        (["ERROR Worker proc W-0 died unexpectedly", "RuntimeError: cancelled"], "Worker proc W-0 died unexpectedly"),
    ],
)
def test_the_reason_is_the_first_error_that_is_about_itself(tmp_path: Path, lines: list[str], said: str) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(lines))
    assert reason(log) == said
