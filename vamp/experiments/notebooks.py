"""Runs notebooks: finds them, checks their parameters, executes each in its own process, gathers verdicts."""

from __future__ import annotations

import ast
import json
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from papermill.inspection import inspect_notebook

from vamp import paths
from vamp.errors import ConfigError
from vamp.experiments.kernels import Job, execute, progress_file
from vamp.experiments.progress import Progress, read_progress
from vamp.experiments.timeouts import CELL_TIMEOUT_S, START_TIMEOUT_S

PAPER_REPEATS = 5
"""Runs per configuration in the replay and in the sweep (Table III)."""
PAPER_REPEATS_OF = {"08_fig6_closed_loop": 3, "12_lmcache_trace": 3}
"""Of other workloads (Table III)."""
PAPER_HOURS = 6.0
"""Length of the closed-loop runs (section VI-B)."""
_POLL_S = 0.25
_GRACE_S = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One notebook's fate: `error` is "" when every cell ran; `verdicts` counts values by verdict."""

    stem: str
    state: str  # waiting | running | ran | failed
    seconds: float = 0.0
    error: str = ""
    verdicts: dict[str, int] = field(default_factory=dict)
    progress: Progress | None = None


def find(names: Iterable[str], folder: Path | None = None) -> list[Path]:
    """Notebooks by stem or by an unambiguous part of it; all that take parameters when no name is given.

    Raises:
        ConfigError: a name fits none or several; the message lists them.
    """
    known = sorted((folder or paths.root() / "notebooks").glob("*.ipynb"))
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return [path for path in known if parameters_of(path)]
    return list(dict.fromkeys(_one(name, known) for name in wanted))


def _one(name: str, known: list[Path]) -> Path:
    name = name.removesuffix(".ipynb")
    hits = [p for p in known if p.stem == name] or [p for p in known if name in p.stem]
    if len(hits) == 1:
        return hits[0]
    problem = "is ambiguous" if hits else "is unknown"
    raise ConfigError(f"notebook {name!r} {problem}; choose from: {', '.join(p.stem for p in hits or known)}")


def parameters_of(path: Path) -> dict[str, Any]:
    """Name and default of every parameter of a notebook; a default that is no literal reads as None.

    Raises:
        ConfigError: the file is no notebook.
    """
    try:
        found = inspect_notebook(path)
    except Exception as err:  # papermill and nbformat have no common base for what a broken file raises
        raise ConfigError(f"{path} is no readable notebook: {type(err).__name__}") from None
    return {name: _literal(p["default"]) for name, p in found.items()}


def plan(
    sources: list[Path],
    given: Mapping[str, str],
    *,
    full: bool = False,
    start_timeout_s: int = START_TIMEOUT_S,
    cell_timeout_s: int = CELL_TIMEOUT_S,
) -> list[Job]:
    """Jobs with checked parameters. A parameter goes to every notebook that has it.

    Args:
        given: parameter values as typed.
        full: as many repeats and hours as the paper, unless `given` says otherwise.

    Raises:
        ConfigError: no chosen notebook has the parameter, or the value has the wrong type.
    """
    known = {source: parameters_of(source) for source in sources}
    for name in given:
        if not any(name in params for params in known.values()):
            valid = sorted({p for params in known.values() for p in params})
            raise ConfigError(f"no chosen notebook has a parameter {name!r}; valid: {', '.join(valid) or 'none'}")
    jobs = []
    for source, defaults in known.items():
        values = {name: coerce(name, text, defaults[name]) for name, text in given.items() if name in defaults}
        if full and "repeats" in defaults:
            values.setdefault("repeats", PAPER_REPEATS_OF.get(source.stem, PAPER_REPEATS))
        if full and "hours" in defaults:
            values.setdefault("hours", PAPER_HOURS)
        backend = str(values.get("backend", defaults.get("backend", "sim")))
        output = (paths.results_dir() / source.stem / f"{source.stem}.{backend}.ipynb").absolute()
        jobs.append(Job(source, output, values, backend, start_timeout_s, cell_timeout_s))
    return jobs


def coerce(name: str, text: str, default: Any) -> Any:
    """A typed value out of command-line text, of the same type as the parameter's default.

    Lists are written as JSON or with commas; a default of None takes a JSON scalar or else text.

    Raises:
        ConfigError: the text is no such value.
    """
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, int):
            return int(text)
        if isinstance(default, float):
            return float(text)
        if isinstance(default, list):
            parts = json.loads(text) if text.startswith("[") else [p.strip() for p in text.split(",") if p.strip()]
            return [coerce(name, str(part), default[0] if default else None) for part in parts]
    except (ValueError, KeyError):
        kind = "true or false" if isinstance(default, bool) else type(default).__name__
        raise ConfigError(f"parameter {name} is {text!r}; it must be {kind}, like its default {default!r}") from None
    return _scalar(text) if default is None else text


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _literal(source: str) -> Any:
    try:
        return ast.literal_eval(source)
    except (ValueError, SyntaxError):
        return None


def run(jobs: list[Job], parallel: int = 1, show: Callable[[list[Outcome]], None] | None = None) -> list[Outcome]:
    """Execute notebooks, `parallel` at a time; a failed one does not stop the others.

    Args:
        show: called several times a second with the state of every notebook.
    """
    if parallel < 1:
        raise ConfigError(f"-j is {parallel}; it must be at least 1")
    with tempfile.TemporaryDirectory(prefix="vamp-", ignore_cleanup_errors=True) as folder:
        crew = _Crew(jobs, Path(folder))
        try:
            going = True
            while going:
                going = crew.step(parallel)
                if show:
                    show(crew.outcomes)
        finally:
            crew.stop()
        return crew.outcomes


class _Crew:
    """The processes of notebooks under way."""

    def __init__(self, jobs: list[Job], folder: Path) -> None:
        self._jobs, self._folder = jobs, folder
        self._waiting = deque(range(len(jobs)))
        self._running: dict[int, tuple[BaseProcess, connection.Connection, float]] = {}
        self.outcomes = [Outcome(job.stem, "waiting") for job in jobs]

    def step(self, parallel: int) -> bool:
        """Start what may start, wait a moment, collect what ended; False when nothing is left."""
        while self._waiting and len(self._running) < parallel:
            self._start(self._waiting.popleft())
        connection.wait([process.sentinel for process, _, _ in self._running.values()], timeout=_POLL_S)
        for index, (process, answer, start_s) in list(self._running.items()):
            seconds = time.monotonic() - start_s
            progress = read_progress(progress_file(self._runtime(index)))
            if process.is_alive():
                self.outcomes[index] = replace(self.outcomes[index], seconds=seconds, progress=progress)
            else:
                del self._running[index]
                self.outcomes[index] = self._ended(index, process, answer, seconds)
        return bool(self._waiting or self._running)

    def stop(self) -> None:
        """End what still runs: papermill gets a moment to save the notebook and stop its kernel."""
        for process, _, _ in self._running.values():
            process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for process, _, _ in self._running.values():
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()

    def _start(self, index: int) -> None:
        context = get_context("spawn")
        receive, send = context.Pipe(duplex=False)
        job = self._jobs[index]
        runtime = self._runtime(index)
        runtime.mkdir()
        process = context.Process(target=execute, args=(job, runtime, send), name=job.stem)
        process.start()
        send.close()
        self._running[index] = (process, receive, time.monotonic())
        self.outcomes[index] = replace(self.outcomes[index], state="running")

    def _runtime(self, index: int) -> Path:
        return self._folder / str(index)

    def _ended(self, index: int, process: BaseProcess, answer: connection.Connection, seconds: float) -> Outcome:
        job = self._jobs[index]
        try:
            error = str(answer.recv())
        except EOFError:
            error = f"its process died (exit status {process.exitcode}); see {job.log}"
        if error:
            return Outcome(job.stem, "failed", seconds, error)
        return Outcome(job.stem, "ran", seconds, verdicts=verdicts_of(job, seconds))


def verdicts_of(job: Job, seconds: float) -> dict[str, int]:
    """Verdict counts of the results file that this run wrote; empty when it wrote none."""
    path = job.output.parent / f"results.{job.backend}.json"
    if not path.is_file() or time.time() - path.stat().st_mtime > seconds + 1:
        return {}
    values = json.loads(path.read_text(encoding="utf-8"))["values"]
    return dict(Counter(value["verdict"] for value in values))
