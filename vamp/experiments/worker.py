"""What runs in a worker process. It imports little: `start` comes before torch and vLLM load."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vamp.experiments.progress import Board
    from vamp.experiments.spec import RunSpec
    from vamp.measure.records import RunResult

QUIET = {
    "OMP_NUM_THREADS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
_board: Board | None = None
_n_slots = 1


def start(board: Board | None = None, n_slots: int = 1) -> None:
    """Prepare this process: one thread, quiet libraries, and an end when the parent ends."""
    global _board, _n_slots
    _board, _n_slots = board, n_slots
    os.environ.update(QUIET)
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # warns of a missing GPU
    # Ctrl-C goes to the whole terminal group; the parent decides what it means for the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch_parent()


def execute(spec: RunSpec, row: int = 0) -> str:
    """Run a pinned spec unless it is stored by now, and return its folder.

    One process at a time runs a spec: a second one waits for the lock and then finds the run.

    Raises:
        VampError: whatever the engine refuses, or a store that cannot be written.
    """
    from vamp.experiments.store import RunStore, code_digest, run_key

    store, code = RunStore(), code_digest(spec.backend)
    key = run_key(spec, code)
    if _board is not None:
        _board.claim(row, os.getpid())
    with store.lock(key):
        if store.read(key) is None:
            with store.slot(_n_slots):
                result = _run(spec, lambda done, total: _report(row, done, total))
            store.write(spec, key, code, result)
    return str(store.path(key))


def _run(spec: RunSpec, progress: Callable[[int, int], None]) -> RunResult:
    """On the engine that the spec names, a live server or the simulator; only that one is imported."""
    if spec.backend != "sim":
        from vamp.live.run import run_live

        try:
            return run_live(spec, progress)
        except SystemExit:  # SIGTERM, and the server is stopped: the executor would go on with the next run
            os._exit(1)
    from vamp.sim.run import run_spec

    return run_spec(spec, progress)


def _report(row: int, done: int, total: int) -> None:
    if _board is not None:
        _board.set_turns(row, done, total)


def watch_parent() -> None:
    """End this process when the one that started it ends: a killed notebook leaves no simulation behind."""
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, name="vamp-parent-watch", daemon=True).start()
