"""`python -m vamp.engine.server`: vLLM's own API server, with a place where all its processes leave their metrics.

vLLM's `vllm serve` does not start from the CPU wheel (it looks up a distribution named `vllm`); its server module does.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import tempfile

SERVER = "vllm.entrypoints.openai.api_server"
METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"


def main() -> None:
    """Run the server with this process's arguments until it ends; the directory of the metrics goes with it."""
    if os.environ.get(METRICS_DIR):
        runpy.run_module(SERVER, run_name="__main__", alter_sys=True)
        return
    # The web server ends itself with the signal that stopped it; as an exit, that leaves the folder time to go.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Before prometheus_client is imported: it looks once.
    with tempfile.TemporaryDirectory(prefix="vamp-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[METRICS_DIR] = folder
        runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
