"""The `vamp` command.

Worker processes import the module that started their parent, which is this one: it imports nothing until called.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv`, by default the process's own; the exit status."""
    from vamp.cli.app import run_command

    return run_command(argv)
