"""Checks and load on a bare GPU host."""

from typing import Any

WORKERS: dict[str, Any] = {
    "plain_worker": "tools.gpu.workers.PlainWorker",
    "vamp_worker": "tools.gpu.workers.VampWorker",
}
"""Of `vamp.calibrate.engine.Job`: both with weights that decide the tokens."""
