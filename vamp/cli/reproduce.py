"""`vamp reproduce`: run notebooks and say how they went."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import Progress, TaskID
from rich.table import Column, Table
from typer.core import TyperCommand

from vamp.cli import checks, console
from vamp.errors import ConfigError
from vamp.experiments import cluster
from vamp.experiments.environment import usable_cores
from vamp.experiments.timeouts import CELL_TIMEOUT_S, START_TIMEOUT_S

if TYPE_CHECKING:  # papermill and Jupyter load only here: a bare GPU host has neither, and serves and runs without
    from vamp.experiments.kernels import Job
    from vamp.experiments.notebooks import Outcome

ENDED = ("ran", "failed")
VERDICTS = ("match", "trend", "miss", "not_run", "cited")


class ReproduceCommand(TyperCommand):
    """Lets `-p NAME VALUE` repeat: typer has repeated options and options of two values, not both in one."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        return super().parse_args(ctx, join_pairs(args))


def join_pairs(args: list[str]) -> list[str]:
    """`-p NAME VALUE` becomes `-p NAME=VALUE`; what is written that way already stays."""
    joined: list[str] = []
    rest = iter(args)
    for arg in rest:
        joined.append(arg)
        if arg == "--":
            break
        if arg in ("-p", "--parameter") and (name := next(rest, None)) is not None:
            value = next(rest, None) if name.isidentifier() else None
            joined.append(name if value is None else f"{name}={value}")
    return [*joined, *rest]


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NOTEBOOK]...", help="A notebook's stem or an unambiguous part; all by default."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", help="Notebooks at a time; as many as cores by default.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME VALUE", help="Set a notebook parameter; may be repeated."),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="A recorded trace, file or folder: parameter trace.")] = None,
    backend: Annotated[str | None, typer.Option(help="Parameter backend: sim, or cpu, a live server here.")] = None,
    platform: Annotated[str | None, typer.Option(help="Parameter platform.")] = None,
    full: Annotated[bool, typer.Option("--full", help="As many runs of each configuration as the paper.")] = False,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Runs go to this Ray cluster: auto, HOST:PORT or ray://HOST:PORT."),
    ] = None,
    start_timeout: Annotated[int, typer.Option(help="Seconds for a kernel to start.")] = START_TIMEOUT_S,
    cell_timeout: Annotated[int, typer.Option(help="Seconds for one cell.")] = CELL_TIMEOUT_S,
) -> int:
    """Run notebooks, paper against measured. Example: vamp reproduce table4 -p ratio 15 -p repeats 2

    Executed notebooks and results go to artifact/results/<notebook>/; notebooks/ stays as it is. Exit status
    0 only when every notebook ran to its end.
    """
    given = _assignments(parameter or [])
    for name, value in (("backend", backend), ("platform", platform)):
        if value is not None:
            given[name] = value
    if trace is not None:
        given["trace"] = checks.existing(trace)
    checks.check_parameters(given)
    from vamp.experiments import notebooks

    sources = notebooks.find(names or [])
    if backend is not None and not names:
        sources = _having(sources, backend)
    planned = notebooks.plan(
        sources,
        given,
        full=full,
        start_timeout_s=start_timeout,
        cell_timeout_s=cell_timeout,
    )
    if ray is not None:
        _use_cluster(ray)
    outcomes = _run(planned, usable_cores() if jobs is None else jobs)
    console.out.print(_table(outcomes))
    for outcome in outcomes:
        if outcome.error:
            console.err.print(f"vamp: {outcome.stem}: {outcome.error}", markup=False)
    return 0 if all(outcome.state == "ran" for outcome in outcomes) else 1


def _having(sources: list[Path], backend: str) -> list[Path]:
    """All notebooks that take the backend; says which are left out. Raises ConfigError: none does."""
    from vamp.experiments.catalogue import having

    fits, others = having(sources, backend)
    if not fits:
        raise ConfigError(f"no notebook runs on backend {backend!r}; use sim, cpu, cuda or recorded")
    if others:
        console.out.print(f"not on {backend}: {', '.join(path.stem for path in others)}", markup=False)
    return fits


def _use_cluster(address: str) -> None:
    """For the notebooks, which inherit the environment. Raises ConfigError: nothing answers there."""
    with cluster.connected(address) as nodes:
        has = nodes.resources
    console.out.print(
        f"runs go to the Ray cluster: {has.get('CPU', 0):g} cores, {has.get('GPU', 0):g} GPUs", markup=False
    )
    os.environ[cluster.ADDRESS] = address


def _assignments(pairs: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.isidentifier():
            raise ConfigError(f"-p {pair!r} is no parameter; write -p NAME VALUE")
        given[name] = value
    return given


def _run(jobs: list[Job], parallel: int) -> list[Outcome]:
    from vamp.experiments.notebooks import run

    with console.progress_bars() as bars:
        tasks = [bars.add_task(job.stem, total=1.0, start=False, detail="") for job in jobs]

        told: set[str] = set()

        def show(outcomes: list[Outcome]) -> None:
            for task, outcome in zip(tasks, outcomes, strict=True):
                _show(bars, task, outcome)
                if outcome.state in ENDED and outcome.stem not in told:
                    told.add(outcome.stem)
                    bars.console.print(f"{outcome.stem}: {outcome.state} ({outcome.seconds:.0f} s)")

        return run(jobs, parallel, show)


def _show(bars: Progress, task: TaskID, outcome: Outcome) -> None:
    if outcome.state == "waiting":
        return
    bars.start_task(task)
    if outcome.state in ENDED:
        bars.update(task, completed=1.0, detail=outcome.state)
    elif outcome.progress:
        runs = f"runs {outcome.progress.done}/{outcome.progress.total}"
        bars.update(task, completed=outcome.progress.fraction, detail=runs)


def _table(outcomes: list[Outcome]) -> Table:
    columns = [Column(title, no_wrap=True) for title in ("notebook", "state", *VERDICTS, "s")]
    table = Table(*columns, box=SIMPLE_HEAD, caption="verdicts: values of the results file")
    for outcome in outcomes:
        counts = [str(outcome.verdicts.get(verdict, "")) for verdict in VERDICTS]
        table.add_row(outcome.stem, outcome.state, *counts, f"{outcome.seconds:.0f}")
    return table
