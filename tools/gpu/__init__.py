"""Checks and load on a bare GPU host."""

WORKERS = {"plain_worker": "tools.gpu.workers.PlainWorker", "vamp_worker": "tools.gpu.workers.VampWorker"}
"""Of `vamp.calibrate.engine.Job`: both with weights that decide the tokens."""
