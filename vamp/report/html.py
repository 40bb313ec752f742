"""One offline page, artifact/report/index.html: claims, paper against measured, figures, environment."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vamp.errors import ClaimError
from vamp.paths import report_dir, results_dir
from vamp.report.claims import ClaimVerdict, claim_verdicts
from vamp.report.results import Results, judged_rows, load, write_atomically
from vamp.report.rules import load_rules
from vamp.report.tables import delta, number, with_sd, with_sd_any
from vamp.report.values import load_values
from vamp.report.verdicts import VERDICTS, Verdict

MISSED = 3  # the page was made, and a claim of the paper does not hold: not the same as a report that failed
_TOLD = ("match", "trend", "miss")


@dataclass(frozen=True, slots=True)
class Collected:
    """All results of one backend. `rows` has every value id once; `files` are the results behind it."""

    backend: str
    files: list[Results]
    rows: dict[str, dict[str, Any]]

    @property
    def claims(self) -> list[ClaimVerdict]:
        """Verdicts of all claims; values from another platform than the paper's do not count."""
        rules = load_rules()
        own = {i: r["verdict"] for i, r in self.rows.items() if r["platform"] == rules.rule(i).platform}
        return claim_verdicts(own)

    def count(self, verdict: Verdict) -> int:
        return sum(row["verdict"] == verdict for row in self.rows.values())


@dataclass(frozen=True, slots=True)
class Page:
    """What the page shows. `problems`: files that could not be read."""

    collected: list[Collected]
    problems: list[str] = field(default_factory=list)

    @property
    def missed(self) -> list[tuple[str, ClaimVerdict]]:
        """Backend and claim, for every claim that was measured and does not hold."""
        return [(c.backend, v) for c in self.collected for v in c.claims if v.verdict == "miss"]


def collect(folder: Path | None = None) -> Page:
    """Read every results file there is."""
    found: dict[str, list[Results]] = {}
    problems = []
    for path in sorted((folder or results_dir()).glob("*/results.*.json")):
        try:
            results = load(path)
        except ClaimError as err:
            problems.append(str(err))
            continue
        found.setdefault(results.backend, []).append(results)
    if not found:
        found = {"sim": []}
    return Page([_collected(backend, files) for backend, files in sorted(found.items())], problems)


def _collected(backend: str, files: list[Results]) -> Collected:
    """Ids that no file covers are not_run, or cited where there is nothing to measure; measured rows win."""
    rows = {row["id"]: row for row in judged_rows(["*"], [], backend, "no notebook has measured it")}
    for results in files:
        for row in results.values:
            if row["id"] in rows and (row["verdict"] in _TOLD or rows[row["id"]]["verdict"] not in _TOLD):
                rows[row["id"]] = row
    return Collected(backend, files, rows)


def value_lines(collected: Iterable[Collected]) -> list[dict[str, Any]]:
    """One line per value id: the paper's, and for every backend the measured one with its verdict."""
    backends = list(collected)
    return [
        {
            "id": value.id,
            "quantity": value.quantity,
            "condition": value.condition,
            "unit": value.unit,
            "paper": _printed(value.value, value.sd),
            "own": [_own_cell(c.rows[value.id], value.value) for c in backends],
        }
        for value in load_values().values()
    ]


def _printed(value: Any, sd: float | None) -> str:
    return with_sd(value, sd) if isinstance(value, int | float) else number(value)


def _own_cell(row: Mapping[str, Any], paper: Any) -> dict[str, Any]:
    told = row["verdict"] in _TOLD
    return {
        "measured": with_sd_any(row["measured"], row["sd"]) if told else "",
        "n": row["n"] if told else "",
        "delta": delta(paper, row["measured"]) if told else "",
        "tolerance": row["tolerance"],
        "verdict": row["verdict"],
        "note": row["note"],
        "platform": row["platform"] if told else "",
    }


def _figures(results: Results) -> list[dict[str, str]]:
    """Every SVG beside a results file, as a data URI."""
    folder = results_dir() / results.notebook
    return [
        {
            "name": path.name.removesuffix(f".{results.backend}.svg"),
            "uri": "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode(),
        }
        for path in sorted(folder.glob(f"*.{results.backend}.svg"))
    ]


def render(page: Page) -> str:
    """The page as HTML; it loads nothing from anywhere."""
    loader = PackageLoader("vamp.report")
    env = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return env.get_template("index.html.j2").render(
        page=page,
        verdicts=VERDICTS,
        values=value_lines(page.collected),
        claims=list(zip(*(c.claims for c in page.collected), strict=True)),
        figures={(r.notebook, r.backend): _figures(r) for c in page.collected for r in c.files},
        limits=load_rules().limits,
    )


def build_report() -> int:
    """Write artifact/report/index.html from whatever results there are, and say what does not hold.

    Returns:
        0; MISSED when a claim is a miss; 1 when a results file could not be read.
    """
    page = collect()
    path = report_dir() / "index.html"
    write_atomically(path, render(page).encode())
    for c in page.collected:
        print(f"{c.backend}: " + " · ".join(f"{v} {c.count(v)}" for v in VERDICTS))
        for claim in c.claims:
            if claim.ran:
                print(f"  {claim.claim.id} {claim.verdict}: {claim.claim.text}")
    print(f"report: {path.parent.parent.name}/{path.parent.name}/{path.name}")
    for backend, verdict in page.missed:
        values = ", ".join(verdict.missed)
        print(f"vamp: claim {verdict.claim.id} is a miss with backend {backend}: {values}", file=sys.stderr)
    for problem in page.problems:
        print(f"vamp: {problem}", file=sys.stderr)
    return 1 if page.problems else MISSED if page.missed else 0
