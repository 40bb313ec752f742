"""The backend `recorded`: runs that were made on GPUs once, kept as one JSON file per experiment in data/recorded.

Form: {"format", "what", "label", "recorded", "command", "environment", "sha256", "runs": [{"spec", "meta",
"requests", "timeline", "preemption_s", "decisions"}]}; the three tables by column, with their dtypes. `sha256` is over
the canonical JSON of `runs`: a file that was edited or cut is refused. Other files there are not runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vamp.errors import ConfigError, RunError
from vamp.experiments.progress import describe
from vamp.experiments.spec import RunSpec
from vamp.experiments.store import RunStore, StoredRun, canonical
from vamp.measure.records import RunResult
from vamp.paths import data_dir
from vamp.report.results import write_atomically

FORMAT = "vamp-runs/1"
MAX_BYTES = 10**6
"""A repository is no place for more; an experiment that needs more is several."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One file. `recorded` is the day of its first run; `gpu` how many of which, e.g. "1x NVIDIA H200"."""

    name: str
    recorded: str
    gpu: str
    runs: tuple[tuple[RunSpec, dict[str, Any]], ...]

    @property
    def origin(self) -> str:
        """For titles."""
        return f"recorded on {self.gpu}, {self.recorded}"


def recordings(folder: Path | None = None) -> list[Recording]:
    """Every file of this form in data/recorded.

    Raises:
        RunError: one is damaged.
    """
    found = (_read(path) for path in sorted((folder or data_dir() / "recorded").glob("*.json")))
    return [recording for recording in found if recording is not None]


def answers(specs: Sequence[RunSpec]) -> list[RunResult]:
    """What was recorded of these specs, in their order. All of a spec must agree but the backend.

    Raises:
        ConfigError: there is none; the message lists what there is on that platform.
        RunError: a file is damaged.
    """
    if not specs:
        return []
    known = recordings()
    return [_answer(spec, known) for spec in specs]


def recorded_ones(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Those of which there is a recording; all of them when there is none at all, so that `answers` says so."""
    known = recordings()
    return [spec for spec in specs if _find(spec, known) is not None] or list(specs)


def origin_of(platform: str) -> str:
    """Of the recordings on that platform, for titles; "recorded on GPUs" without any."""
    origins = {r.origin for r in recordings() if any(spec.platform == platform for spec, _ in r.runs)}
    return "; ".join(sorted(origins)) or "recorded on GPUs"


def write(path: Path, stored: Sequence[StoredRun], *, what: str, command: str) -> int:
    """Make a recording out of stored runs; its size in bytes.

    Args:
        what: one line, what the experiment shows. command: what made the runs.

    Raises:
        ConfigError: no run, or more than `MAX_BYTES` of them.
        RunError: the file cannot be written.
    """
    if not stored:
        raise ConfigError("no run to record; name runs of the store, or make some with vamp run --backend cuda")
    runs = [_packed(one) for one in sorted(stored, key=lambda one: one.finished_utc)]
    first = min(stored, key=lambda one: one.finished_utc)
    gpus = first.meta.get("gpus", [])
    environment = first.environment | {
        "gpu": gpus[0]["name"] if gpus else "none",
        "gpu_count": len(gpus),
        "cuda_driver_api": gpus[0]["driver_api"] if gpus else None,
    }
    recording = {
        "format": FORMAT,
        "what": what,
        "label": str(first.meta.get("model", first.meta.get("label", ""))),
        "recorded": first.finished_utc[:10],
        "command": command,
        "environment": environment,
        "sha256": _digest(runs),
        "runs": runs,
    }
    content = json.dumps(recording, separators=(",", ":"), allow_nan=False).encode()
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path.name} would have {len(content)} bytes, the limit is {MAX_BYTES}: record fewer runs")
    try:
        write_atomically(path, content)
    except OSError as err:
        raise RunError(f"cannot write {path}: {err.strerror or err}; free some space or name another file") from None
    return len(content)


def stored_runs(
    store: RunStore, keys: Iterable[str] = (), *, backend: str = "cuda", since: str = ""
) -> list[StoredRun]:
    """Runs of the store: those whose key starts with one of `keys`, or all of `backend` finished at or after `since`.

    Raises:
        ConfigError: a key fits no run or several.
    """
    every = store.runs()
    wanted = list(keys)
    for key in wanted:
        if sum(one.key.startswith(key) for one in every) != 1:
            known = ", ".join(one.key[:8] for one in every) or "none"
            raise ConfigError(f"run {key!r} fits none or several of the store's; there are: {known}")
    if wanted:
        return [one for one in every if any(one.key.startswith(key) for key in wanted)]
    return [one for one in every if one.spec["backend"] == backend and one.finished_utc >= since]


def _read(path: Path) -> Recording | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.get("format") != FORMAT:
            return None
        if _digest(found["runs"]) != found["sha256"]:
            raise ValueError("its runs are not those that were written")
        environment = found["environment"]
        gpu = f"{environment['gpu_count']}x {environment['gpu']}"
        runs = tuple((RunSpec.model_validate(run["spec"]), run) for run in found["runs"])
        return Recording(path.stem, found["recorded"], gpu, runs)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        text = " ".join(str(err).split())[:200]
        raise RunError(f"data/recorded/{path.name} is damaged ({text}); restore it, or record it again") from None


def _answer(spec: RunSpec, known: Sequence[Recording]) -> RunResult:
    run = _find(spec, known)
    if run is not None:
        return _unpacked(run)
    own = [describe(other) for r in known for other, _ in r.runs if other.platform == spec.platform]
    there = "; ".join(sorted(own)) or "nothing"
    raise ConfigError(f"{describe(spec)} was not recorded in this form; on {spec.platform} there is: {there}")


def _find(spec: RunSpec, known: Sequence[Recording]) -> dict[str, Any] | None:
    wanted = _identity(spec)
    return next((run for r in known for other, run in r.runs if _identity(other) == wanted), None)


def _identity(spec: RunSpec) -> dict[str, Any]:
    return canonical(spec) | {"backend": "recorded"}


def _packed(stored: StoredRun) -> dict[str, Any]:
    result = stored.result
    fields = list(result.decisions[0]) if result.decisions else []
    return {
        "spec": stored.spec,
        "finished_utc": stored.finished_utc,
        "meta": {name: value for name, value in result.meta.items() if value == value},  # without NaN, which JSON lacks
        "requests": _columns(result.requests),
        "timeline": _columns(result.timeline),
        "preemption_s": result.preemption_s,
        "decisions": {"fields": fields, "rows": [[record.get(name) for name in fields] for record in result.decisions]},
    }


def _unpacked(run: dict[str, Any]) -> RunResult:
    return RunResult(
        requests=_frame(run["requests"]),
        timeline=_frame(run["timeline"]),
        preemption_s=list(run["preemption_s"]),
        decisions=[dict(zip(run["decisions"]["fields"], row, strict=True)) for row in run["decisions"]["rows"]],
        meta=run["meta"],
    )


def _columns(frame: pd.DataFrame) -> dict[str, Any]:
    """Column to [dtype, values]; a missing value is null."""
    filled = {str(name): column.astype(object).where(column.notna(), None) for name, column in frame.items()}
    return {name: [str(frame[name].dtype), values.tolist()] for name, values in filled.items()}


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(values, dtype=dtype) for name, (dtype, values) in columns.items()})


def _digest(runs: list[Any]) -> str:
    return hashlib.sha256(json.dumps(runs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
