"""`vamp report`: every stored result on one page."""

from __future__ import annotations


def report() -> int:
    """Build artifact/report/index.html from the results under artifact/results."""
    from vamp.report.html import build_report  # jinja2 and matplotlib load only here

    return build_report()
