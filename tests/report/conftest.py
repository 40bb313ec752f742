"""Results of a test go to a temporary folder; rules and values are the shipped ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vamp.paths import root


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of data/ and of the rules; VAMP_HOME points there."""
    shutil.copytree(root() / "data", tmp_path / "data")
    (tmp_path / "artifact").mkdir()
    for name in ("tolerances.yaml", "claims.yaml"):
        shutil.copy(root() / "artifact" / name, tmp_path / "artifact")
    monkeypatch.setenv("VAMP_HOME", str(tmp_path))
    return tmp_path
