"""`python -m tools.gpu.environment`: what this host is, as JSON: for what is recorded on it."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from vamp.memory.drivers.libcuda import checked, cu


def environment() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "gpu_memory_mib": properties.total_memory // 2**20,
        "gpu_count": torch.cuda.device_count(),
        "cuda": torch.version.cuda,
        "cuda_driver_api": int(checked("version", cu.cuDriverGetVersion())),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        **{name: _version(name) for name in ("torch", "triton", "vllm", "cuda-bindings")},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    print(json.dumps(environment()))
