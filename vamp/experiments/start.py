"""What there is: every notebook with what it shows and the claims that it decides, read from the notebooks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from vamp.experiments import table1
from vamp.experiments.parameters import Parameters
from vamp.memory.geometry import GIB
from vamp.paths import root
from vamp.report.claims import load_claims

NOTEBOOK = "00_start_here"
_SEE = "**You should see**"


class Params(Parameters):
    pass


@dataclass(frozen=True, slots=True)
class Entry:
    """One notebook: its stem, its title, what a reader should see, and the claims that it decides."""

    stem: str
    title: str
    see: str
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """All notebooks; JupyterLab shows it with links."""

    entries: tuple[Entry, ...]

    def _repr_markdown_(self) -> str:
        lines = ["| notebook | claims | what you should see |", "|---|---|---|"]
        lines += [f"| [{e.title}]({e.stem}.ipynb) | {', '.join(e.claims)} | {e.see} |" for e in self.entries]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return "\n".join(f"{e.stem}: {e.title}" for e in self.entries)


def overview(folder: Path | None = None) -> Overview:
    """Every notebook but this one, in their order."""
    paths = sorted((folder or root() / "notebooks").glob("*.ipynb"))
    return Overview(tuple(entry(path) for path in paths if path.stem != NOTEBOOK))


def entry(path: Path) -> Entry:
    """Title and expectation are the first Markdown cell's heading and its paragraph that begins "You should see"."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    title = text.splitlines()[0].removeprefix("# ")
    see = " ".join(text.partition(_SEE)[2].split("\n\n")[0].split())
    claims = tuple(claim.id for claim in load_claims() if path.stem in claim.notebooks)
    return Entry(path.stem, title, see, claims)


def quick_look() -> pd.DataFrame:
    """Table I's geometry, computed: the fastest result there is."""
    return table1.table(table1.load(table1.Params.check()))


def verdict() -> str:
    """One line: do the sizes that follow from the model alone equal the paper's?"""
    sizes = [f"{pl.experts.weights_bytes / GIB:.1f}" for pl in table1.load(table1.Params.check())]
    return f"expert weights per GPU: {' and '.join(sizes)} GiB (paper: 72.0 and 36.0)"
