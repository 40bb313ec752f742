"""`vamp bench`: figures beside their limits. The exit status says that it measured, not that it passed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from vamp.cli import console

app = typer.Typer(help="Measure this installation.", rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@app.command()
def policy(as_json: Json = False) -> None:
    """Decision latency of the controller (the situations of the in-house sweep on H200-NVL, c = 32, VAMP-20)."""
    from vamp.bench.policy import LIMIT_P99_US, measure

    found = measure()
    if as_json:
        typer.echo(json.dumps({**asdict(found), "limit_p99_us": LIMIT_P99_US, "pass": found.within}))
        return
    table = Table("decisions", "where", "p50, us", "p99, us", f"p99 <= {LIMIT_P99_US:g} us")
    table.add_row(str(found.n), "alone", f"{found.p50_us:.1f}", f"{found.p99_us:.1f}", _verdict(found.within))
    inside = (f"{found.in_scheduler_p50_us:.1f}", f"{found.in_scheduler_p99_us:.1f}")
    table.add_row("", "in the scheduler, inputs gathered", *inside, "")
    console.out.print(table)


@app.command()
def sim(as_json: Json = False) -> None:
    """Speed and memory of one 2,103-turn stand-in replay, on one core, after imports."""
    from vamp.bench.sim import LIMIT_RSS_GIB, LIMIT_WALL_S, measure

    found = measure()
    if as_json:
        runs = [
            {
                **asdict(r),
                "virtual_per_real": r.virtual_per_real,
                "steps_per_s": r.steps_per_s,
                "pass": r.within,
            }
            for r in found
        ]
        limits = {"limit_wall_s": LIMIT_WALL_S, "limit_rss_gib": LIMIT_RSS_GIB}
        typer.echo(json.dumps({"runs": runs, **limits}))
        return
    table = Table(
        "ratio, %",
        "virtual s per real s",
        f"real s (<= {LIMIT_WALL_S:g})",
        "steps per s",
        f"peak GiB (<= {LIMIT_RSS_GIB:g})",
        "limits",
    )
    for r in found:
        figures = (
            f"{r.virtual_per_real:.0f}",
            f"{r.wall_s:.1f}",
            f"{r.steps_per_s:.0f}",
            f"{r.peak_rss_gib:.2f}",
        )
        table.add_row(f"{r.ratio_pct:g}", *figures, _verdict(r.within))
    console.out.print(table)


def _verdict(within: bool) -> str:
    return "pass" if within else "over"
