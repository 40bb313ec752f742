"""A bare GPU host has no notebook machinery: what serves and what runs live experiments does without."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOTEBOOK_ONLY = ("papermill", "jupyter_client", "jupyter_core", "nbformat", "ipykernel", "traitlets", "tornado")
REFUSE = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOTEBOOK_ONLY!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""


def imports(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", REFUSE + code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "code",
    [
        "import vamp.cli.app",
        "import vamp.live.run, vamp.experiments.ensure, vamp.experiments.worker, vamp.experiments.store",
        "import vamp.workloads.client, vamp.experiments.recording, vamp.live.keeper",
    ],
)
def test_commands_and_live_runs_load_without_notebooks(code: str) -> None:
    done = imports(code)
    assert done.returncode == 0, done.stderr[-500:]


def test_running_notebooks_needs_them() -> None:
    """The negative control."""
    assert "ModuleNotFoundError" in imports("import vamp.experiments.notebooks").stderr
