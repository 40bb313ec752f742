"""Keeps notebooks/ fit for review: outputs stripped, except in cells tagged keep_output, and no run metadata.

python tools/clean_notebooks.py            strip in place
python tools/clean_notebooks.py --check    exit status 1, and names, if a notebook is not clean
python tools/clean_notebooks.py --run      execute with the defaults first, so that kept outputs are new
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
KEPT_CELL_KEYS = {"tags"}
KEPT_NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def cleaned(nb: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Execution counts stay on kept outputs only: nbval takes a cell without one for one that never ran."""
    nb = nbformat.from_dict(nb)
    nb.metadata = nbformat.from_dict(KEPT_NOTEBOOK_METADATA)
    for cell in nb.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in KEPT_CELL_KEYS})
        if cell.cell_type == "code" and "keep_output" not in cell.metadata.get("tags", []):
            cell.outputs, cell.execution_count = [], None
        elif cell.cell_type == "code" and cell.outputs:
            cell.execution_count = 1
    return nb


def run(path: Path) -> nbformat.NotebookNode:
    """Execute with the defaults; the file itself is not touched."""
    from nbclient import NotebookClient

    nb = nbformat.read(path, as_version=4)
    NotebookClient(nb, timeout=None, kernel_name="python3").execute()
    return nb


def text_of(nb: nbformat.NotebookNode) -> str:
    return nbformat.writes(nb, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which notebooks are not clean")
    parser.add_argument("--run", action="store_true", help="execute first")
    options = parser.parse_args()
    dirty = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        new = text_of(cleaned(run(path) if options.run else nbformat.read(path, as_version=4)))
        if new == path.read_text(encoding="utf-8"):
            continue
        dirty.append(path.name)
        if not options.check:
            temporary = path.with_suffix(".tmp")
            temporary.write_text(new, encoding="utf-8")
            temporary.replace(path)
    print(
        "\n".join(f"{'not clean' if options.check else 'cleaned'}: {name}" for name in dirty),
        end="\n" * bool(dirty),
    )
    return 1 if options.check and dirty else 0


if __name__ == "__main__":
    sys.exit(main())
