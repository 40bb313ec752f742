"""Stands between a run and its server, so that no server process outlives the run. Standard library only.

`keeper.py GRACE_S COMMAND...` starts the command in a process group of its own, prints "pid N", and waits. When its
standard input closes, be it on purpose or because the run died however suddenly, it ends the server: SIGTERM to the
front end, which stops its engine in order, then after GRACE_S seconds SIGKILL to everything that is left. When the
front end ends by itself, what it left behind is killed at once. It is the subreaper of all processes below it: they
become its children when their parents die, and it leaves only when it has none.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
SIGNALLED = 128
"""Exit status for a server that a signal ended, less the signal's number, as shells have it."""
_POLL_S = 0.02


def main(grace_s: float, command: list[str]) -> int:
    """The server's exit status."""
    for quiet in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # only the run decides when the server ends
        signal.signal(quiet, signal.SIG_IGN)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, process_group=0, preexec_fn=_default
    )
    with suppress(BrokenPipeError):
        print("pid", server.pid, flush=True)
    statuses: dict[int, int] = {}
    if not _first_is_ready(os.pidfd_open(server.pid), sys.stdin.fileno()):
        server.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline and descendants():
            time.sleep(_POLL_S)
            _reap(statuses)
    sweep(statuses)
    server.returncode = status = statuses[server.pid]
    return status if status >= 0 else SIGNALLED - status


def _default() -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


def _first_is_ready(first: int, second: int) -> bool:
    """Wait for either descriptor."""
    poll = select.poll()
    for descriptor in (first, second):
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return first in dict(poll.poll())


def sweep(statuses: dict[int, int]) -> None:
    """Kill every process below this one; return when there is none left to collect."""
    while _reap(statuses):
        for pid in descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def descendants() -> list[int]:
    """Living processes below this one, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(entry.name)] = int(parent)
    found, below = [], {os.getpid()}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below}
        found += sorted(below)
    return found


def _reap(statuses: dict[int, int]) -> bool:
    """Collect children that ended, adopted ones too, with their exit statuses; whether there are more."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[found[0]] = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
