"""`vamp report`: every stored result on one page, or the artifact's appendix."""

from __future__ import annotations

from typing import Annotated

import typer


def report(
    appendix: Annotated[
        bool, typer.Option("--appendix", help="Write artifact/APPENDIX.md from claims and notebooks instead.")
    ] = False,
) -> int:
    """Build artifact/report/index.html from the results under artifact/results."""
    if appendix:
        from vamp.report.appendix import write_appendix

        path = write_appendix()
        print(f"appendix: {path.parent.name}/{path.name}")
        return 0
    from vamp.report.html import build_report  # jinja2 and matplotlib load only here

    return build_report()
