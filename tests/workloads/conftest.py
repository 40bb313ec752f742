from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder with public recordings, none of which is committed (data/README.md)."""
    folder = Path(os.environ.get("VAMP_TRACES") or Path(__file__).resolve().parents[3] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no public recordings at {folder}; set VAMP_TRACES to a folder that has them")
    return folder
