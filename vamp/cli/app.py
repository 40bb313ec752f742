"""The commands, and what their ends look like: errors become one line on stderr and an exit status.

0 it did what was asked · 1 it tried and failed · 2 the request makes no sense · 130 Ctrl-C
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from typer.main import get_command

import vamp
from vamp.cli import bench, calibrate, doctor, record, report, reproduce, run, serve
from vamp.errors import InvariantError, RunError, VampError, VersionError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="vamp",
    help="Reproduce arXiv 2609.13537: expert weights and KV cache as one pool of GPU memory.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("reproduce", cls=reproduce.ReproduceCommand)(reproduce.reproduce)
app.add_typer(run.app, name="run")
app.command("report")(report.report)
app.command("record")(record.record)
app.add_typer(bench.app, name="bench")
app.command("calibrate")(calibrate.calibrate)
app.command("doctor")(doctor.doctor)
app.command("serve", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(serve.serve)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"vamp {vamp.__version__} (for vLLM {vamp.SUPPORTED_VLLM})")
        raise typer.Exit()


@app.callback()
def _top(version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True)) -> None:
    pass


def run_command(argv: Sequence[str] | None) -> int:
    """Run a command; the exit status."""
    try:
        status = get_command(app)(args=argv, prog_name="vamp", standalone_mode=False)
    except VampError as err:
        return _complain(err, FAILED if isinstance(err, (RunError, InvariantError, VersionError)) else MISUSED)
    except typer.TyperException as err:
        return _complain(f"{err.format_message().rstrip('.')}; see vamp --help", MISUSED)
    if status == INTERRUPTED:  # typer's own answer to Ctrl-C
        return _complain("interrupted", INTERRUPTED)
    return status if isinstance(status, int) else 0


def _complain(what: object, status: int) -> int:
    print(f"vamp: {' '.join(str(what).split())}", file=sys.stderr)
    return status
