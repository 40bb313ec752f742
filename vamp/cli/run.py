"""`vamp run`: one experiment, as a table or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from vamp.cli import checks, console
from vamp.cli.dry_run import show_plans
from vamp.errors import ConfigError
from vamp.experiments.ensure import check_backend, ensure
from vamp.experiments.parameters import platform_for
from vamp.experiments.progress import Progress
from vamp.experiments.recording import origin_of
from vamp.experiments.spec import RunSpec, make_spec
from vamp.live.platform import LIVE_BACKENDS, load_live_platform
from vamp.measure.records import RunResult
from vamp.measure.summary import Summary, summarise
from vamp.workloads.agents import TASKS

SWEEP_CONCURRENCY = (16, 20, 24, 28)
"""Both of the paper's sweeps have these (section VI-C), H200-NVL two more. Live platforms have their own."""
DEFAULT_PLATFORM = "h100_pcie_tp2"

app = typer.Typer(help="Run one experiment.", rich_markup_mode=None)

Trace = Annotated[Path | None, typer.Option(help="A recorded trace, file or folder.")]
Platform = Annotated[
    str | None,
    typer.Option(
        help=f"Under data/platforms ({DEFAULT_PLATFORM}), or a FILE.json of vamp calibrate; cpu, cuda: under data/live."
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        help="sim: vLLM's scheduler in virtual time; cpu, cuda: a live server here; recorded: an earlier GPU run."
    ),
]
Ratio = Annotated[str, typer.Option(help="VAMP-r, percent of experts that may go, 0 to 50; 0 is plain vLLM.")]
Seed = Annotated[int, typer.Option(min=0)]
Copies = Annotated[int, typer.Option(min=1, help="Repeat a trace's sessions, sharing no prefix.")]
LimitTurns = Annotated[int | None, typer.Option(min=1, help="Turns of a trace; without --trace, of each session.")]
Reserve = Annotated[
    bool,
    typer.Option(
        "--reserve-full-isl",
        help="Admit only requests whose whole prompt fits, as vLLM 0.26.0 does. Off here, as in the paper.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="cpu, cuda: print the server command and the workload, check, start nothing.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@app.command()
def replay(
    trace: Trace = None,
    platform: Platform = None,
    backend: Backend = "sim",
    concurrency: Annotated[int | None, typer.Option(min=1, help="Sessions of a trace alive at once.")] = None,
    ratio: Ratio = "0",
    seed: Seed = 0,
    copies: Copies = 1,
    limit_turns: LimitTurns = None,
    reserve_full_isl: Reserve = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Replay a trace, or without --trace the seeded stand-in for the paper's 2,103 turns.

    Example: vamp run replay --trace sessions/ --ratio 15 --json
    """
    common = _common(platform, backend, ratio, seed, reserve_full_isl)
    if trace is None:
        if concurrency is not None:
            raise ConfigError(f"--concurrency {concurrency} needs --trace; the stand-in has the paper's sessions")
        if copies != 1:
            raise ConfigError(f"--copies {copies} needs --trace; the stand-in has the paper's sessions and turns")
        console.err.print("no --trace: replaying the seeded stand-in for the paper's recording; nobody recorded it")
    workload = _workload(trace, "replay", concurrency, copies, limit_turns)
    _run([make_spec(workload=workload, **common)], as_json, dry_run)


@app.command()
def sweep(
    trace: Trace = None,
    platform: Platform = None,
    backend: Backend = "sim",
    concurrency: Annotated[
        list[str] | None, typer.Option(help="Sessions alive at once; repeat it or separate by commas.")
    ] = None,
    ratio: Ratio = "0",
    seed: Seed = 0,
    copies: Copies = 1,
    limit_turns: LimitTurns = None,
    reserve_full_isl: Reserve = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Vary the concurrency of the in-house 12-turn workload, or with --trace of recorded sessions.

    With --json and several concurrencies the object is {"runs": [...]}, one entry each as of a single run.
    Example: vamp run sweep --platform h200_nvl_tp4 --concurrency 28,32,36 --ratio 20
    """
    common = _common(platform, backend, ratio, seed, reserve_full_isl)
    if trace is None and copies != 1:
        raise ConfigError(f"--copies {copies} needs --trace; the in-house workload has sessions of its own")
    levels = checks.concurrencies(concurrency or []) or _sweep(backend, common["platform"])
    _run(
        [make_spec(workload=_workload(trace, "inhouse", c, copies, limit_turns), **common) for c in levels],
        as_json,
        dry_run,
    )


def _sweep(backend: str, platform: str) -> list[int]:
    return list(SWEEP_CONCURRENCY if backend == "sim" else load_live_platform(platform).sweep)


@app.command("closed-loop")
def closed_loop(
    platform: Platform = None,
    backend: Backend = "sim",
    hours: Annotated[
        float, typer.Option(min=0.01, max=48, help="Virtual hours, the paper has 6; a live run divides them.")
    ] = 6.0,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Agents at work at once.")] = None,
    ratio: Ratio = "0",
    seed: Seed = 0,
    reserve_full_isl: Reserve = False,
    as_json: Json = False,
) -> None:
    """Made-up agents whose next request depends on the previous reply, for some hours (Fig. 6).

    Example: vamp run closed-loop --hours 2 --ratio 15 --json
    """
    common = _common(platform, backend, ratio, seed, reserve_full_isl)
    divisor = load_live_platform(common["platform"]).replay.time_divisor if backend in LIVE_BACKENDS else 1.0
    overrides = {} if concurrency is None else {"agents": concurrency, "tasks": max(concurrency, TASKS)}
    workload = {"kind": "agents", "overrides": overrides}
    _run([make_spec(workload=workload, max_virtual_s=hours * 3600 / divisor, **common)], as_json)


def _common(platform: str | None, backend: str, ratio: str, seed: int, reserve_full_isl: bool) -> dict[str, Any]:
    check_backend(backend)
    return {
        "backend": backend,
        "platform": platform_for(backend, platform, DEFAULT_PLATFORM),
        "ratio_pct": checks.ratio_pct(ratio),
        "seed": seed,
        "reserve_full_isl": reserve_full_isl,
    }


def _workload(
    trace: Path | None, kind: str, concurrency: int | None, copies: int, limit_turns: int | None
) -> dict[str, Any]:
    if trace is None:
        return {"kind": kind, "concurrency": concurrency, "limit_turns": limit_turns}
    path = checks.existing(trace)
    return {
        "kind": "trace",
        "trace_path": path,
        "concurrency": concurrency,
        "copies": copies,
        "limit_turns": limit_turns,
    }


_DOING = {"sim": "simulating", "cpu": "running live", "cuda": "running live", "recorded": "reading"}


def _run(specs: list[RunSpec], as_json: bool, dry_run: bool = False) -> None:
    if dry_run:
        show_plans(specs, as_json)
        return
    with console.progress_bars() as bars:
        task = bars.add_task(_DOING[specs[0].backend], total=1.0, detail="")

        def show(progress: Progress) -> None:
            bars.update(task, completed=progress.fraction, detail=f"runs {progress.done}/{progress.total}")

        results = ensure(specs, report=lambda line: bars.console.print(line, markup=False), progress=show)
    rows = [summarise(result, spec) for result, spec in zip(results, specs, strict=True)]
    for result, row in zip(results, rows, strict=True):
        _remarks(result, row)
    if as_json:
        objects = [_object(*triple) for triple in zip(specs, results, rows, strict=True)]
        typer.echo(json.dumps(objects[0] if len(objects) == 1 else {"runs": objects}))
    else:
        console.out.print(_table(specs, results, rows))


def _object(spec: RunSpec, result: RunResult, row: Summary) -> dict[str, Any]:
    facts = {key: result.meta.get(key) for key in ("label", "stand_in", "notes", "n_sessions", "n_turns")}
    if spec.backend != "sim":
        facts |= {key: result.meta.get(key) for key in ("live", "model", "server_start_s", "n_groups_max", "pool_blk")}
    return {
        "spec": spec.model_dump(mode="json"),
        **row.as_json(),
        "simulated": spec.backend == "sim",
        **facts,
    }


def _remarks(result: RunResult, row: Summary) -> None:
    """What a reader of the numbers must know, on stderr."""
    notes = ", ".join(f"{name} {value}" for name, value in result.meta.get("notes", {}).items())
    for remark in (
        notes,
        row.window_note,
        f"{row.failed} of {row.requests} requests failed" if row.failed else "",
        f"{row.unfinished} requests were under way when the time was up" if row.unfinished else "",
    ):
        if remark:
            console.err.print(f"{result.meta.get('label', 'run')}: {remark}", markup=False)


def _table(specs: Sequence[RunSpec], results: Sequence[RunResult], rows: Sequence[Summary]) -> Table:
    columns = [str(r.meta.get("label", s.workload.kind)) for s, r in zip(specs, results, strict=True)]
    table = Table(
        "",
        *columns,
        title=f"{specs[0].system} on {specs[0].platform}, {_how(specs[0])} (backend {specs[0].backend})",
    )
    for name in rows[0].as_json():
        table.add_row(name, *(_cell(getattr(row, name)) for row in rows))
    return table


def _how(spec: RunSpec) -> str:
    if spec.backend == "sim":
        return "simulated"
    label = load_live_platform(spec.platform).label
    return label if spec.backend in LIVE_BACKENDS else f"{label}; {origin_of(spec.platform)}"


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items()) or "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
