"""A server for the length of a `with` block: started, waited for, and gone afterwards with all of its processes."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from vamp.errors import ConfigError, RunError
from vamp.live import keeper

HOST = "127.0.0.1"
START_TIMEOUT_S = 600.0
"""A start takes 15 s on an idle machine without torch.compile, minutes on a busy one with it."""
GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""
_POLL_S = 0.25
_SHOWN_CHARS = 300
_TAIL_BYTES = 256 * 1024
_ERROR = re.compile(
    r"(?:\b\w*(?:Error|Exception|Interrupt): |\berror: |\bFatal Python error: |(?=Worker proc \S+ died))(?P<text>\S.*)"
)
_WRAPPERS = (
    "Engine core initialization failed",
    "See root cause",
    "Engine loop died",
    "WorkerProc initialization",
    "cancelled",
)
"""Errors that only say that another process had one."""

OnWait = Callable[[float], None]


@dataclass(slots=True)
class LiveServer:
    """A server that runs.

    Attributes:
        url: its root.
        pid: of the front end, and its process group's id.
        log: what it and its engine print.
    """

    url: str
    pid: int
    log: Path
    _keeper: subprocess.Popen[str] = field(repr=False)

    @property
    def ended(self) -> bool:
        """The front end is gone, and with it everything that it had started."""
        return self._keeper.poll() is not None

    def healthy(self) -> bool:
        """It answers `/health` with 200: front end and engine live."""
        try:
            with urlopen(f"{self.url}/health", timeout=10) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):  # refused, reset, timed out, or 503 from a dead engine
            return False

    def obituary(self, when: str) -> str:
        """One line: how it ended, and the log's own reason.

        What a dead front end left behind is cleared away first, which takes a moment: a server that does not answer is
        given that long before it is called unhealthy.
        """
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(GRACE_S)
        status = self._keeper.poll()
        if status is None:
            how = "is not healthy"
        elif status > keeper.SIGNALLED:
            how = f"was killed ({signal.Signals(status - keeper.SIGNALLED).name})"
        else:
            how = f"ended with status {status}"
        return f"the server {how} {when}: {reason(self.log)}; its log is {self.log}"


@contextmanager
def serving(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    port: int,
    start_timeout_s: float = START_TIMEOUT_S,
    on_wait: OnWait | None = None,
) -> Iterator[LiveServer]:
    """Start a server, wait until it is healthy, and stop it at the end of the block, whatever ends it.

    All of its processes end, too, if this process is killed: see `vamp.live.keeper`.

    Args:
        command: serves on `HOST` and `port`.
        log: written to; its folder exists.
        on_wait: called several times a second during the start with the seconds so far.

    Raises:
        ConfigError: the port is taken.
        RunError: it ended, or was not healthy in time; the message has the last useful line of the log.
    """
    check_port(port)
    guard = [sys.executable, str(Path(keeper.__file__)), str(GRACE_S), *command]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            guard,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            env=dict(environment),
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we then stop the server in order
        )
    try:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline().split()
        if len(said) != 2:
            raise RunError(f"the server could not be started: {reason(log)}; its log is {log}")
        server = LiveServer(f"http://{HOST}:{port}", int(said[1]), log, process)
        _wait_until_healthy(server, start_timeout_s, on_wait)
        yield server
    finally:
        _stop(process)


def _wait_until_healthy(server: LiveServer, timeout_s: float, on_wait: OnWait | None) -> None:
    began_s = time.monotonic()
    while not server.healthy():
        waited_s = time.monotonic() - began_s
        if server.ended:
            raise RunError(server.obituary(f"{waited_s:.0f} s into its start"))
        if waited_s > timeout_s:
            raise RunError(server.obituary(f"after {timeout_s:.0f} s; raise the limit or look at the log"))
        if on_wait:
            on_wait(waited_s)
        time.sleep(_POLL_S)


def _stop(process: subprocess.Popen[str]) -> None:
    """Let the keeper end the server, and wait for it; a second Ctrl-C waits no less."""
    assert process.stdin is not None and process.stdout is not None
    interrupted: BaseException | None = None
    process.stdin.close()
    while True:
        try:
            process.wait()
            break
        except KeyboardInterrupt as again:
            interrupted = again
    process.stdout.close()
    if interrupted:
        raise interrupted


def free_port() -> int:
    """A port of `HOST` that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def check_port(port: int) -> None:
    """Raises ConfigError: the port cannot be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as err:
            why = getattr(err, "strerror", None) or str(err)
            raise ConfigError(f"port {port} of {HOST} cannot be used ({why}); name another, or none") from None


def reason(log: Path) -> str:
    """The last useful line of a log: its first error that is not about another error, else its last line."""
    try:
        with log.open("rb") as content:
            content.seek(0, 2)
            content.seek(max(0, content.tell() - _TAIL_BYTES))
            lines = content.read().decode("utf-8", errors="replace").splitlines()
    except OSError as err:
        return f"no log ({err.strerror})"
    errors = [found for line in lines if "WARNING" not in line and (found := _ERROR.search(line))]
    for found in errors:
        if not any(wrapper in found["text"] for wrapper in _WRAPPERS):
            return found.group(0).strip()[:_SHOWN_CHARS]
    last = next((line.strip() for line in reversed(lines) if line.strip()), "the log is empty")
    return last[:_SHOWN_CHARS]
