"""artifact/APPENDIX.md, in the form of the EuroSys artifact appendix, from the claims and the notebooks."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from vamp.experiments.start import overview
from vamp.paths import root
from vamp.report.claims import Claim, load_claims
from vamp.report.results import write_atomically


def appendix_path() -> Path:
    return root() / "artifact" / "APPENDIX.md"


def appendix_text() -> str:
    """The appendix. An experiment is a notebook; E1 is the first by name."""
    entries = overview().entries
    numbers = {entry.stem: f"E{n}" for n, entry in enumerate(entries, 1)}

    def experiments_of(claim: Claim) -> list[str]:
        return [numbers[stem] for stem in claim.notebooks if stem in numbers]

    loader = PackageLoader("vamp.report")
    env = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = env.get_template("appendix.md.j2")
    return template.render(claims=load_claims(), entries=entries, experiments_of=experiments_of)


def write_appendix() -> Path:
    """Write it in one step."""
    write_atomically(appendix_path(), appendix_text().encode())
    return appendix_path()
