"""What a notebook runs: the experiment whose parameters it checks, and the backends that this experiment has."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import nbformat


def module_of(path: Path) -> str:
    """The module whose `Params.check` a notebook calls, such as vamp.experiments.table4; "" for none."""
    for cell in nbformat.read(path, as_version=4).cells:  # type: ignore[no-untyped-call]
        if cell.cell_type == "code":
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".Params.check"):
                    return f"vamp.experiments.{ast.unparse(node.func).split('.')[0]}"
    return ""


def backends_of(path: Path) -> tuple[str, ...]:
    """Backends that a notebook takes; none if it checks no parameters."""
    name = module_of(path)
    found: tuple[str, ...] = importlib.import_module(name).Params.backends if name else ()
    return found


def having(sources: list[Path], backend: str) -> tuple[list[Path], list[Path]]:
    """Those that take the backend, or do not say; and the others."""
    fits = [path for path in sources if not (own := backends_of(path)) or backend in own]
    return fits, [path for path in sources if path not in fits]
