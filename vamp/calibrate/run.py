"""`vamp calibrate`: everything that this host lets us measure, one part after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vamp.calibrate import calls
from vamp.calibrate.engine import FREE_OFFLOADING, Job
from vamp.calibrate.profile import Model, Profile, Step, spread
from vamp.engine.cpu_host import ENVIRONMENT
from vamp.errors import ConfigError
from vamp.experiments.environment import environment

REPEATS, QUICK_REPEATS = 21, 5
STEPS_TIMEOUT_S = 480.0
POOL_BLK = 1288
"""ASSUMPTION, of a GPU: KV blocks while steps are timed, 8.02 GiB of a Qwen3-Next rank."""
_LOG_CHARS = 600

Report = Callable[[str], None]


def calibrate(
    model: Path | None, *, quick: bool = False, load_format: str = "dummy", report: Report = lambda line: None
) -> Profile:
    """Measure. A part that fails is named in `failures`; the others go on.

    Args:
        model: folder whose steps are timed; None leaves them out.
        quick: fewer repeats, batch sizes and contexts.

    Raises:
        ConfigError: the folder has no config.json.
    """
    if model is not None and not (model / "config.json").is_file():
        raise ConfigError(f"model {model} has no config.json; give the folder of a model")
    device = cuda_device()
    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name, field, work in _parts(device, QUICK_REPEATS if quick else REPEATS):
        try:
            found[field] = (*found.get(field, ()), *work())
            report(f"{name}: done")
        except Exception as err:  # whatever a driver raises; the other parts still count
            failures[name] = f"{type(err).__name__}: {err}".splitlines()[0]
            report(f"{name}: FAILED: {failures[name]}")
    if model is not None:
        steps, why = _steps(model, device, quick, load_format, report)
        found |= steps
        failures |= why
    profile = Profile(
        device=device or str(environment()["cpu"]),
        device_gib=device_gib(device),
        environment=environment(),
        recorded=datetime.now(UTC).isoformat(timespec="seconds"),
        quick=quick,
        failures=failures,
        **found,
    )
    try:
        from vamp.calibrate.coefficients import fitted
    except ImportError as err:  # a bare GPU host; `sim` fits when it reads the file
        return profile.model_copy(update={"failures": failures | {"fit": f"{err}; done when sim reads this file"}})
    return fitted(profile)


def cuda_device() -> str:
    """Name of the first CUDA device; "" without one."""
    import torch

    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else ""


def device_gib(device: str) -> float:
    """Memory of the first CUDA device, or of the host."""
    if not device:
        return float(environment()["memory_gib"])
    import torch

    return float(torch.cuda.get_device_properties(0).total_memory / 2**30)


def _parts(device: str, repeats: int) -> list[tuple[str, str, Callable[[], list[Any]]]]:
    """Name, field of the profile, and what measures it."""
    if not device:
        return [
            ("host copies", "copies", lambda: calls.host_copies(repeats)),
            ("memfd calls", "calls", lambda: calls.memfd_calls(repeats)),
        ]
    from vamp.calibrate import device as cuda

    return [
        ("copies by the copy engine", "copies", lambda: cuda.engine_copies(repeats)),
        ("copies by the staging kernel", "copies", lambda: cuda.kernel_copies(repeats)),
        ("driver calls", "calls", lambda: cuda.driver_calls(repeats)),
        ("remaps", "remaps", lambda: cuda.remaps(repeats)),
        ("interference", "interference", lambda: cuda.interference(repeats)),
    ]


def _free_device() -> None:
    """Give back what this process caches; its context stays."""
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()


def job_for(model: Path, device: str, load_format: str) -> Job:
    """The engine whose steps are timed: VAMP's on a GPU, plain vLLM's CPU build elsewhere."""
    if device:
        return Job(str(model), "vamp", POOL_BLK, cost=FREE_OFFLOADING, load_format=load_format)
    return Job(
        str(model),
        "plain",
        blocks=200,
        on_cpu=True,
        plain_worker="vamp.engine.worker.VampCPUWorker",  # keeps off AMX, as under vamp serve
        load_format=load_format,
        max_num_seqs=8,
        max_num_batched_tokens=1024,
        max_model_len=2048,
    )


def _steps(
    model: Path, device: str, quick: bool, load_format: str, report: Report
) -> tuple[dict[str, Any], dict[str, str]]:
    """`model` and `steps` of the profile, and what failed, from an engine in a process of its own."""
    job = asdict(job_for(model.resolve(), device, load_format)) | {"quick": quick}
    with tempfile.TemporaryDirectory(prefix="vamp-calibrate-") as folder:
        out, log = Path(folder) / "steps.json", Path(folder) / "log"
        env = {**(ENVIRONMENT if not device else {}), **os.environ}
        env |= {"VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_NO_USAGE_STATS": "1"}
        report("model steps: starting vLLM")
        if device:
            _free_device()
        with log.open("w") as sink:
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "vamp.calibrate.steps", json.dumps(job), str(out)],
                    stdout=sink,
                    stderr=sink,
                    env=env,
                    timeout=STEPS_TIMEOUT_S,
                )
                ended = f"exit status {done.returncode}" if done.returncode else ""
            except subprocess.TimeoutExpired:
                ended = f"still running after {STEPS_TIMEOUT_S:g} s"
        if ended:
            report(f"model steps: {ended}; the end of its log:\n{log.read_text(errors='replace')[-_LOG_CHARS:]}")
        raw = json.loads(out.read_text()) if out.is_file() else {}
    failures = {f"steps: {name}": why for name, why in raw.get("failures", {}).items()}
    if ended:
        failures["model steps"] = ended
    if "model" not in raw:
        return {}, failures
    steps = []
    for row in (row for name, rows in raw.items() if name not in ("model", "failures") for row in rows):
        try:
            steps.append(step(row))
        except ConfigError as err:
            failures[f"steps: {row['kind']} of {row['prefill_tok']} + {row['decode_seqs']} tokens"] = str(err)
    report(f"model steps: {len(steps)} kinds timed")
    return {"model": Model.model_validate(raw["model"]), "steps": tuple(steps)}, failures


def step(row: dict[str, Any]) -> Step:
    """A row of the timing process with its times summarised.

    Raises:
        ConfigError: other work on this host disturbed it so much that it says nothing.
    """
    values = {name: value for name, value in row.items() if name != "times_ms"}
    found = spread(row["times_ms"])
    if found.median <= 0:
        raise ConfigError(f"the median is {found.median:.1f} ms, so other work disturbed it; run it on a quiet host")
    return Step(ms=found, **values)
