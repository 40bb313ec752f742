"""What every notebook keeps to, read from its source without running it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from vamp.experiments.catalogue import module_of
from vamp.paths import root

NOTEBOOKS = sorted((root() / "notebooks").glob("*.ipynb"))
MAX_CODE_LINES = 60
ENGINES = {"vllm", "torch", "cuda", "triton"}


@pytest.fixture(params=NOTEBOOKS, ids=lambda p: p.stem)
def nb(request: pytest.FixtureRequest) -> Any:
    return nbformat.read(request.param, as_version=4)


def code_cells(nb: Any) -> list[Any]:
    return [c for c in nb.cells if c.cell_type == "code"]


def tree(nb: Any) -> ast.Module:
    return ast.parse("\n".join(c.source for c in code_cells(nb)))


def tags(cell: Any) -> list[str]:
    return list(cell.metadata.get("tags", []))


def parameters(nb: Any) -> list[ast.AnnAssign]:
    (cell,) = [c for c in code_cells(nb) if "parameters" in tags(c)]
    body = ast.parse(cell.source).body
    assert all(isinstance(node, ast.AnnAssign) for node in body)
    return body  # type: ignore[return-value]


def problems(source: ast.Module) -> list[str]:
    """Constructs that belong into the package: definitions and loops."""
    banned = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While, ast.Lambda, ast.Try)
    return [type(node).__name__ for node in ast.walk(source) if isinstance(node, banned)]


def imported(source: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def params_call(nb: Any) -> ast.Call:
    calls = [n for n in ast.walk(tree(nb)) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("Params.check")]
    (call,) = calls
    return call


def test_these_are_there() -> None:
    assert [p.stem.split("_")[0] for p in NOTEBOOKS] == [f"{n:02d}" for n in range(20)]


def test_it_is_valid_and_runs_on_the_plain_kernel(nb: Any) -> None:
    nbformat.validate(nb)
    assert nb.metadata.kernelspec.name == "python3"


def test_it_is_thin(nb: Any) -> None:
    lines = [line for c in code_cells(nb) for line in c.source.splitlines() if line.strip()]
    assert len(lines) <= MAX_CODE_LINES
    assert problems(tree(nb)) == []
    assert not any(line.lstrip().startswith(("%", "!")) for line in lines)


def test_the_check_for_definitions_can_fail() -> None:
    assert problems(ast.parse("def f():\n    pass\nclass A: ...\nfor x in y: pass")) == [
        "FunctionDef",
        "ClassDef",
        "For",
    ]


def test_parameters_are_plain_and_explained(nb: Any) -> None:
    (cell,) = [c for c in code_cells(nb) if "parameters" in tags(c)]
    found = parameters(nb)
    assert len(found) == len(cell.source.splitlines())
    assert all("  # " in line for line in cell.source.splitlines())
    for node in found:
        assert isinstance(node.annotation, ast.Name)
        assert node.annotation.id in {"str", "int", "float", "bool", "list"}
        assert node.value is not None
        value = ast.literal_eval(node.value)
        assert type(value).__name__ == node.annotation.id  # an int default would turn "12.5" away


def test_every_parameter_is_read(nb: Any) -> None:
    names = {node.target.id for node in parameters(nb) if isinstance(node.target, ast.Name)}
    read = {n.id for n in ast.walk(tree(nb)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    assert names and names <= read


def test_parameters_go_through_one_check(nb: Any, request: pytest.FixtureRequest) -> None:
    """The call takes each parameter by its own name, and the model has no others."""
    import importlib

    call = params_call(nb)
    passed = {k.arg: ast.unparse(k.value) for k in call.keywords}
    assert all(name == value for name, value in passed.items())
    module = importlib.import_module(module_of(request.node.callspec.params["nb"]))
    assert set(passed) == set(module.Params.model_fields)
    defaults = {n.target.id: n.value for n in parameters(nb) if isinstance(n.target, ast.Name) and n.value}
    given = {name: ast.literal_eval(value) for name, value in defaults.items()}
    assert module.Params.check(**given) == module.Params.check()


def test_it_knows_its_own_name(nb: Any, request: pytest.FixtureRequest) -> None:
    import importlib

    stem = request.node.callspec.params["nb"].stem
    assert stem == importlib.import_module(module_of(request.node.callspec.params["nb"])).NOTEBOOK


def test_no_engine_and_no_path(nb: Any) -> None:
    assert not {name.split(".")[0] for name in imported(tree(nb))} & ENGINES
    strings = [n.value for n in ast.walk(tree(nb)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    assert not [s for s in strings if "/" in s or s.startswith(".")]


@pytest.mark.slow
def test_what_notebooks_import_loads_no_engine() -> None:
    notebooks = [nbformat.read(p, as_version=4) for p in NOTEBOOKS]
    names = {n for nb in notebooks for n in imported(tree(nb)) if n != "vamp.experiments"}
    names |= {module_of(p) for p in NOTEBOOKS} | {"vamp.experiments.sensitivity"}
    lines = [f"import {n}" for n in sorted(names)]
    lines += ["import sys", f"print(sorted({ENGINES!r} & set(sys.modules)))"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_outputs_are_stripped_except_the_verdicts(nb: Any) -> None:
    kept = [c for c in code_cells(nb) if "keep_output" in tags(c)]
    assert len(kept) == 1 and kept[0] is code_cells(nb)[-1]
    assert "nbval-check-output" in tags(kept[0])
    assert all(not c.outputs and c.execution_count is None for c in code_cells(nb) if c is not kept[0])


def test_the_text_frames_the_numbers(nb: Any) -> None:
    text = [c.source for c in nb.cells if c.cell_type == "markdown"]
    assert text[0].startswith("# ") and "You should see" in text[0]
    assert any(t.startswith("## Interpreting") for t in text)


def test_the_cleaner_agrees() -> None:
    tool = Path(root(), "tools", "clean_notebooks.py")
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
