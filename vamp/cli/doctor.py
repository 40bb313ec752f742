"""`vamp doctor`: what this host can run, and what to do about the rest."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vamp.cli import checks, console

Model = Annotated[Path | None, typer.Option(help="Folder of a model whose experts' host copies have to fit.")]
Ratios = Annotated[str, typer.Option(help="Ratios of --model, percent, separated by commas.")]
Tp = Annotated[int, typer.Option(min=1, help="Ranks of --model on this host.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings fail too.")]


def doctor(
    model: Model = None, ratios: Ratios = "15,25", tp: Tp = 1, as_json: Json = False, strict: Strict = False
) -> None:
    """One line each: ok, warn or no, and what to do. Exit status 0 if some backend can run here."""
    from vamp.doctor.checks import can_run, examine
    from vamp.doctor.gather import gather

    findings = examine(gather(model, [checks.ratio_pct(text) for text in ratios.split(",")], tp))
    runs = can_run(findings)
    good = runs and not (strict and any(f.level == "warn" for f in findings))
    if as_json:
        typer.echo(json.dumps({"can_run": runs, "pass": good, "findings": [asdict(f) for f in findings]}))
    else:
        for finding in findings:
            console.out.print(finding.line, markup=False)
    raise typer.Exit(0 if good else 1)
