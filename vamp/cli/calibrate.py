"""`vamp calibrate`: measure this host, write one profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vamp.calibrate.profile import Profile, Spread, write
from vamp.cli import console
from vamp.errors import RunError

Out = Annotated[Path, typer.Option(help="Where the profile goes; sim reads it as --platform FILE.")]
Model = Annotated[Path | None, typer.Option(help="Folder of a model whose steps are timed, with vLLM.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer repeats and sizes.")]
Format = Annotated[str, typer.Option(help="How vLLM loads the model: dummy has random weights.")]


def calibrate(
    out: Out = Path("calibration.json"), model: Model = None, quick: Quick = False, load_format: Format = "dummy"
) -> None:
    """Measure copies, page moves and, with --model, model steps; on a CUDA device, else what this CPU host has.

    Example: vamp calibrate --model data/models/qwen3-next-tp2-rank --out h200.json
    """
    from vamp.calibrate.run import calibrate as measure

    profile = measure(
        model, quick=quick, load_format=load_format, report=lambda line: console.err.print(line, markup=False)
    )
    write(profile, out)
    console.out.print(_table(profile))
    for name, why in profile.failures.items():
        console.err.print(f"not measured: {name}: {why}", markup=False)
    if profile.fitted is None:
        console.err.print(f"{out}: no model steps, so sim cannot use it as a platform; give --model", markup=False)
    if not (profile.copies or profile.calls or profile.steps):
        raise RunError("nothing could be measured on this host; see the lines above")


def _table(profile: Profile) -> Table:
    table = Table("what", "median", "p10", "p90", "n", title=f"{profile.device} ({'quick, ' * profile.quick}measured)")

    def add(what: str, unit: str, found: Spread) -> None:
        table.add_row(f"{what}, {unit}", f"{found.median:.4g}", f"{found.p10:.4g}", f"{found.p90:.4g}", str(found.n))

    for c in profile.copies:
        add(f"{c.direction} by {c.way}, {c.nbytes / 2**20:g} MiB", "GB/s", c.gb_per_s)
    for call in profile.calls:
        add(f"{call.call}, {call.nbytes / 2**20:g} MiB", "us", call.us)
    for r in profile.remaps:
        add(f"grow by {r.groups} groups", "ms", r.grow_ms)
    for i in profile.interference:
        add("matrix product alone", "ms", i.alone_ms)
        add(f"matrix product beside copies by {i.way}", "ms", i.beside_ms)
    for s in profile.steps:
        staged = f", {s.groups} groups {s.staging}" if s.groups else ""
        add(f"{s.kind}: {s.prefill_tok} + {s.decode_seqs} tokens{staged}", "ms", s.ms)
    if profile.fitted:
        for name, value in profile.fitted.coefficients.items():
            table.add_row(f"fitted: {name}", f"{value:.4g}", "", "", "")
        for name, rows in profile.fitted.residuals_pct.items():
            table.add_row(f"residuals of {name}, %", " ".join(f"{r:+.1f}" for r in rows), "", "", "")
    return table
