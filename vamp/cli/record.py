"""`vamp record`: stored runs as one file that the backend `recorded` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vamp.errors import ConfigError
from vamp.experiments.progress import describe
from vamp.experiments.recording import stored_runs, write
from vamp.experiments.spec import RunSpec
from vamp.experiments.store import RunStore

Keys = Annotated[list[str] | None, typer.Argument(help="Beginnings of run names; none takes every run of the backend.")]


def record(
    out: Annotated[Path, typer.Option(help="The file, e.g. data/recorded/h200_tp2_rank_replay.json.")],
    what: Annotated[str, typer.Option(help="One line: what the experiment shows.")],
    keys: Keys = None,
    runs: Annotated[Path | None, typer.Option(help="Another run store than this checkout's.")] = None,
    backend: Annotated[str, typer.Option(help="Without keys: runs of this backend.")] = "cuda",
    kind: Annotated[str, typer.Option(help="Without keys: of this kind of workload, e.g. replay.")] = "",
    since: Annotated[str, typer.Option(help="Without keys: finished at or after, e.g. 2026-12-01T08:00.")] = "",
    command: Annotated[str, typer.Option(help="What made the runs.")] = "python -m tools.gpu.runs",
) -> None:
    """Write runs of the store, with requests, timeline and decisions, to one JSON file.

    Example: vamp record --out data/recorded/h200_tp2_rank_replay.json --what "Table IV's replay" --kind replay
    """
    if runs is not None and not runs.is_dir():
        raise ConfigError(f"run store {runs} is no folder; name one, or leave --runs out")
    found = stored_runs(RunStore(runs), keys or (), backend=backend, since=since)
    if not keys and kind:
        found = [one for one in found if one.spec["workload"]["kind"] == kind]
    size = write(out, found, what=what, command=command)
    for one in found:
        typer.echo(f"{one.key[:8]}  {one.finished_utc}  {describe(RunSpec.model_validate(one.spec))}")
    typer.echo(f"{out}: {len(found)} runs, {size} bytes")
