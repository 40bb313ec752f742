"""Environment of a process that runs vLLM's scheduler without a server: no telemetry, no hub, no chatter, one thread.

Import before vLLM, which reads these variables when it is imported. What the user has set wins.
"""

from __future__ import annotations

import os

ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "OMP_NUM_THREADS": "1",
}

for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
