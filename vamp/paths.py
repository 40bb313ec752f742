"""Where the checkout is. Notebooks and commands may start anywhere, so no path is relative to the caller."""

from __future__ import annotations

import os
from pathlib import Path

from vamp.errors import ConfigError


def root() -> Path:
    """The checkout: `$VAMP_HOME` if set, else the parent of this package.

    Raises:
        ConfigError: the folder has no `data/paper_values.yaml`.
    """
    base = Path(os.environ.get("VAMP_HOME") or Path(__file__).resolve().parent.parent)
    if not (base / "data" / "paper_values.yaml").is_file():
        raise ConfigError(f"{base} is not a vamp checkout (no data/paper_values.yaml); set VAMP_HOME to one")
    return base


def data_dir() -> Path:
    return root() / "data"


def results_dir() -> Path:
    return root() / "artifact" / "results"


def runs_dir() -> Path:
    """The run store: `$VAMP_RUNS` if set, else artifact/runs."""
    return Path(os.environ["VAMP_RUNS"]) if os.environ.get("VAMP_RUNS") else root() / "artifact" / "runs"


def report_dir() -> Path:
    return root() / "artifact" / "report"
