"""`ensure(specs)`: results of runs, read from the store, or run by worker processes where it lacks them.

Specs of the backend `recorded` are answered from data/recorded and never run.

Callers (notebooks, the command line) never import an engine: it loads in spawned workers, which end with the
call.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from vamp.errors import ConfigError, RunError, VampError
from vamp.experiments import cluster, recording, worker
from vamp.experiments.environment import available_memory_bytes, usable_cores
from vamp.experiments.progress import Board, Progress, describe, publish
from vamp.experiments.spec import RunSpec
from vamp.experiments.store import RunStore, code_digest, pinned, run_key
from vamp.measure.records import RunResult

BACKENDS = ("sim", "cpu", "cuda", "recorded")
JOBS = "VAMP_JOBS"
WORKER_BYTES = 3 * 2**29
"""ASSUMPTION: what one worker takes at most, the 1.5 GiB that `vamp bench sim` checks."""
STOP_S = 15.0
"""For a live server to stop; more than the time after which what is left of it is killed."""
_POLL_S = 0.25

Report = Callable[[str], None]
OnProgress = Callable[[Progress], None]
Rows = dict[Future[str], int]
"""Runs under way, and which of the batch they are."""


def ensure(
    specs: Sequence[RunSpec],
    jobs: int | None = None,
    report: Report | None = None,
    *,
    progress: OnProgress | None = None,
) -> list[RunResult]:
    """Results of `specs`, in their order.

    Args:
        jobs: runs at a time, over all callers of this store; None takes `$VAMP_JOBS`, else as many as cores
            and free memory allow. Live runs go one at a time whatever it says: they share the cores or the GPUs.
            On a cluster (`$VAMP_RAY` has its address) its nodes decide.
        report: receives one short line per finished run; None prints it.
        progress: called several times a second while runs are under way, besides `$VAMP_PROGRESS_FILE`.

    Raises:
        ConfigError: a backend that this version does not run, a missing trace, no recording of a spec, or no sensible
            number of jobs.
        VampError: whatever a run refuses; runs finished by then are stored.
        RunError: a worker died, or the store cannot be written.
    """
    for spec in specs:
        check_backend(spec.backend)
    recorded = iter(recording.answers([spec for spec in specs if spec.backend == "recorded"]))
    made = iter(_made([spec for spec in specs if spec.backend != "recorded"], jobs, report, progress))
    return [next(recorded if spec.backend == "recorded" else made) for spec in specs]


def _made(
    specs: list[RunSpec], jobs: int | None, report: Report | None, progress: OnProgress | None
) -> list[RunResult]:
    store = RunStore()
    code = {backend: code_digest(backend) for backend in {spec.backend for spec in specs}}
    fixed = [pinned(spec) for spec in specs]
    keys = [run_key(spec, code[spec.backend]) for spec in fixed]
    wanted = dict(zip(keys, fixed, strict=True))
    results = {key: result for key in wanted if (result := store.read(key)) is not None}
    missing = {key: spec for key, spec in wanted.items() if key not in results}
    batch = _Batch(store, list(missing.values()), len(results), report or print, progress)
    live = any(spec.backend != "sim" for spec in missing.values())
    results.update(zip(missing, batch.run(1 if live else _n_slots(jobs)), strict=True))
    return [results[key] for key in keys]


def check_backend(backend: str) -> None:
    """Raises ConfigError for a backend that this version does not run."""
    if backend not in BACKENDS:
        raise ConfigError(f"backend {backend!r} is not in this version; use one of: {', '.join(BACKENDS)}")


class _Batch:
    """The runs that are missing, and what is said about them."""

    def __init__(
        self,
        store: RunStore,
        specs: list[RunSpec],
        n_stored: int,
        report: Report,
        progress: OnProgress | None,
    ) -> None:
        self._store, self._specs, self._n_stored = store, specs, n_stored
        self._report, self._progress = report, progress
        self._context = get_context("spawn")
        self._board = Board(self._context, len(specs))
        self._results: dict[int, RunResult] = {}

    def run(self, n_slots: int) -> list[RunResult]:
        self._show()
        if self._specs:
            where = cluster.address()
            if where:
                self._run_on_cluster(where)
            else:
                self._run_here(n_slots)
        return [self._results[row] for row in range(len(self._specs))]

    def _run_here(self, n_slots: int) -> None:
        n_workers = min(n_slots, len(self._specs))
        pool = ProcessPoolExecutor(n_workers, self._context, initializer=worker.start, initargs=(self._board, n_slots))
        crew: list[BaseProcess] = []
        try:
            with _sigint_ignored():
                rows = self._submit(pool, worker.execute)
                crew += pool._processes.values()  # the executor has no public way to its processes before 3.14
            self._work(rows, pool, crew)
        except BaseException:  # Ctrl-C too: nothing keeps running, nothing half-written stays
            self._disband(pool, crew)
            raise
        pool.shutdown()

    def _run_on_cluster(self, where: str) -> None:
        with cluster.connected(where) as nodes, cluster.threads(len(self._specs)) as pool:
            try:
                self._work(self._submit(pool, nodes.execute), pool, [])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                nodes.cancel()
                raise

    def _submit(self, pool: Executor, execute: Callable[[RunSpec, int], str]) -> Rows:
        return {pool.submit(execute, spec, row): row for row, spec in enumerate(self._specs)}

    def _work(self, rows: Rows, pool: Executor, crew: list[BaseProcess]) -> None:
        pending = set(rows)
        while pending:
            done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=rows.__getitem__):
                self._collect(rows[future], future, pool, crew)
            self._show()

    def _collect(self, row: int, future: Future[str], pool: Executor, crew: list[BaseProcess]) -> None:
        what = describe(self._specs[row])
        try:
            folder = Path(future.result())
        except BrokenProcessPool:
            pool.shutdown(cancel_futures=True)  # waits, so that exit codes are there
            raise RunError(self._obituary(crew)) from None
        except VampError:
            raise
        except Exception as err:
            raise RunError(f"{what}: {type(err).__name__}: {err}") from err
        result = self._store.read(folder.name)
        if result is None:
            raise RunError(f"{what}: its stored run cannot be read back; check {self._store.root}")
        self._results[row] = result
        n_done = self._n_stored + len(self._results)
        self._report(f"{what}: {_effort(result)} ({n_done}/{self._n_stored + len(self._specs)})")

    def _obituary(self, crew: list[BaseProcess]) -> str:
        """Which run was lost. The executor terminates the other workers once one has died."""
        died = {p.pid: p.exitcode for p in crew if p.exitcode not in (None, 0, -signal.SIGTERM)}
        lost = [row for row in range(len(self._specs)) if row not in self._results and self._board.pid(row) in died]
        names = ", ".join(describe(self._specs[row]) for row in lost) or "a run"
        codes = ", ".join(sorted(_exit_text(code) for code in died.values() if code is not None)) or "terminated"
        return f"{names}: the worker process died ({codes}); if memory ran out, use fewer jobs ({JOBS}=1)"

    def _disband(self, pool: ProcessPoolExecutor, crew: list[BaseProcess]) -> None:
        with _sigint_ignored():
            _end(crew)
            pool.shutdown(cancel_futures=True)
            for process in crew:
                if process.pid is not None:
                    self._store.sweep(process.pid)

    def _show(self) -> None:
        finished = [row in self._results for row in range(len(self._specs))]
        progress = self._board.progress(finished, self._n_stored)
        publish(progress)
        if self._progress:
            self._progress(progress)


def _end(crew: list[BaseProcess]) -> None:
    """A simulating worker ends at once; one with a live server stops that first."""
    for process in crew:
        process.terminate()
    deadline_s = time.monotonic() + STOP_S
    for process in crew:
        process.join(max(0.0, deadline_s - time.monotonic()))
        process.kill()


def _n_slots(jobs: int | None) -> int:
    if jobs is None:
        given = os.environ.get(JOBS, "")
        if given and not given.isdecimal():
            raise ConfigError(f"{JOBS} is {given!r}; it must be a whole number of worker processes, at least 1")
        jobs = int(given) if given else min(usable_cores(), max(1, available_memory_bytes() // WORKER_BYTES))
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}; it must be at least 1")
    return jobs


def _effort(result: RunResult) -> str:
    simulated_s, wall_s = (result.meta.get(key) for key in ("virtual_s", "wall_s"))
    took = f", {simulated_s:.0f} s simulated in {wall_s:.1f} s" if simulated_s and wall_s else ""
    if result.meta.get("live"):
        took = f", {wall_s:.0f} s on a live server that took {result.meta['server_start_s']:.0f} s to start"
    return f"{len(result.requests)} turns{took}"


def _exit_text(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


@contextmanager
def _sigint_ignored() -> Iterator[None]:
    """While workers start (they inherit it, and stay quiet on Ctrl-C) and while they are cleared away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
