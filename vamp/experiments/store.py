"""The run store: one folder per run, named by what the run is.

The name is a SHA-256 over the spec, the source of the code that can change a result, the platform and model
files, and vLLM's version. So a second notebook reads what a first one ran, any order works, and an edit
makes new runs instead of mixing with old ones. A folder appears by one rename, after everything in it is
written; `run.json` holds the digest of every other file, and what does not match is run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

import vamp
from vamp import paths
from vamp.errors import ConfigError, RunError
from vamp.experiments.environment import environment, vllm_version
from vamp.experiments.spec import Backend, RunSpec
from vamp.measure.records import RunResult
from vamp.workloads import sha256_of

_SHARED = ("config.py", "engine", "measure/records.py", "memory", "policy", "profiles.py", "workloads")
_LIVE = (*_SHARED, "cli/serve.py", "live", "staging")
CODE = {
    "sim": (*_SHARED, "calibrate/coefficients.py", "calibrate/fit.py", "calibrate/profile.py", "sim"),
    "cpu": _LIVE,
    "cuda": _LIVE,
}
DATA = {"sim": ("models", "platforms"), "cpu": ("models", "live"), "cuda": ("models", "live")}
_HASH_CHARS = 32
_SLOT_POLL_S = 0.1
_REQUESTS, _TIMELINE, _DECISIONS, _PREEMPTIONS = (
    "requests.parquet",
    "timeline.parquet",
    "decisions.jsonl",
    "preemptions.json",
)


def pinned(spec: RunSpec) -> RunSpec:
    """The spec with the digests of its trace and of a calibrated platform's file: an edited file is another run.

    Raises:
        ConfigError: a file or folder does not exist.
    """
    if spec.platform.endswith(".json") and spec.platform_sha256 is None:
        spec = spec.model_copy(update={"platform_sha256": _file_sha256(spec.platform)})
    path = spec.workload.trace_path
    if path is None or spec.workload.trace_sha256 is not None:
        return spec
    if not Path(path).exists():
        raise ConfigError(f"trace {path} does not exist; give a file or a folder of traces")
    workload = spec.workload.model_copy(update={"trace_sha256": sha256_of(path)})
    return spec.model_copy(update={"workload": workload})


def _file_sha256(platform: str) -> str:
    try:
        return _sha256(Path(platform))
    except OSError as err:
        raise ConfigError(f"platform {platform} cannot be read ({err.strerror}); run vamp calibrate --out") from None


def canonical(spec: RunSpec) -> dict[str, Any]:
    """The spec as plain values; of a trace only the name and digest, since where it lies changes nothing."""
    values = spec.model_dump(mode="json")
    if values["platform_sha256"]:
        values["platform"] = Path(values["platform"]).name
    if values["workload"]["trace_path"]:
        values["workload"]["trace_path"] = Path(values["workload"]["trace_path"]).name
    return values


def code_digest(backend: Backend = "sim") -> str:
    """SHA-256 over names and contents of the source and data files that can change a result of that engine."""
    package = Path(vamp.__file__).parent
    digest = hashlib.sha256(vllm_version().encode())
    for base, names in ((package, CODE[backend]), (paths.data_dir(), DATA[backend])):
        for path in sorted(_files(base, names)):
            digest.update(f"\0{path.relative_to(base).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def run_key(spec: RunSpec, code: str) -> str:
    """Name of the run's folder. `spec` is pinned; `code` comes from `code_digest`."""
    text = json.dumps(canonical(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{code}\n{text}".encode()).hexdigest()[:_HASH_CHARS]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of the store with what it ran on. `spec` is as `canonical` has it."""

    key: str
    spec: dict[str, Any]
    environment: dict[str, Any]
    finished_utc: str
    result: RunResult

    @property
    def meta(self) -> dict[str, Any]:
        return self.result.meta


class RunStore:
    """Folders of runs under `root`, by default `vamp.paths.runs_dir()`."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or paths.runs_dir()

    def path(self, key: str) -> Path:
        return self.root / key

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Held by the one process that runs this spec; the system releases it when that process dies.

        Raises:
            RunError: the store cannot be written to.
        """
        try:
            (self.root / ".locks").mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.root / ".locks" / f"{key}.lock")
            lock.acquire()
        except OSError as err:
            raise self._cannot_write(err) from None
        try:
            for stale in self.root.glob(f".tmp-{key}-*"):  # of a process that died while it held this lock
                shutil.rmtree(stale, ignore_errors=True)
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def slot(self, n_slots: int) -> Iterator[None]:
        """One of `n_slots` places to run in, shared by all callers: notebooks side by side do not crowd.

        Take it after `lock`: whoever has a slot waits for nothing else.
        """
        locks = [FileLock(self.root / ".locks" / f"slot-{i}.lock") for i in range(n_slots)]
        while (free := next(filter(_taken, locks), None)) is None:
            time.sleep(_SLOT_POLL_S)
        try:
            yield
        finally:
            free.release()

    def read(self, key: str) -> RunResult | None:
        """The stored run; None when there is none, or, with a warning, when it is damaged."""
        folder = self.path(key)
        if not folder.is_dir():
            return None
        try:
            run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            for name, digest in run["files"].items():
                if _sha256(folder / name) != digest:
                    raise ValueError(f"{name} differs from what was written")
            return _load(folder, run["meta"])
        except (OSError, ValueError, KeyError, TypeError) as err:
            warnings.warn(f"stored run {key} is damaged and will run again ({err})", RuntimeWarning, stacklevel=2)
            return None

    def runs(self) -> list[StoredRun]:
        """Every run that is whole, in order of their keys; damaged ones are left out, with a warning."""
        found = []
        for path in sorted(self.root.glob("[0-9a-f]*/run.json")):
            result = self.read(path.parent.name)
            if result is not None:
                run = json.loads(path.read_text(encoding="utf-8"))
                found.append(StoredRun(run["key"], run["spec"], run["environment"], run["finished_utc"], result))
        return found

    def write(self, spec: RunSpec, key: str, code: str, result: RunResult) -> Path:
        """Store a run in one step, replacing a damaged one. Call it with the lock held.

        Raises:
            RunError: the disk is full or the folder cannot be written; nothing is left behind.
        """
        temp, old = (self.root / f".tmp-{key}-{os.getpid()}{end}" for end in ("", "-old"))
        try:
            temp.mkdir(parents=True)
            _dump(temp, result)
            files = {path.name: _sha256(path) for path in sorted(temp.iterdir())}
            run = {
                "key": key,
                "spec": canonical(spec),
                "code": code,
                "vllm": vllm_version(),
                "environment": environment(),
                "finished_utc": datetime.now(UTC).isoformat(timespec="seconds"),
                "meta": result.meta,
                "files": files,
            }
            (temp / "run.json").write_text(json.dumps(run, indent=1, default=_plain), encoding="utf-8")
            if self.path(key).exists():
                self.path(key).replace(old)
            temp.replace(self.path(key))
        except OSError as err:
            raise self._cannot_write(err) from None
        finally:
            shutil.rmtree(temp, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
        return self.path(key)

    def adopt(self, key: str, packed: bytes) -> Path:
        """Take over a run that another machine made: its folder as a gzipped tar. Call it with the lock held.

        Raises:
            RunError: it arrived damaged, or cannot be written; nothing is left behind.
        """
        temp = RunStore(self.root / f".tmp-{key}-{os.getpid()}")
        try:
            temp.path(key).mkdir(parents=True)
            with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
                archive.extractall(temp.path(key), filter="data")
            if temp.read(key) is None:
                raise RunError(f"run {key} arrived damaged from another machine; run it again")
            shutil.rmtree(self.path(key), ignore_errors=True)
            temp.path(key).replace(self.path(key))
        except tarfile.TarError as err:
            raise RunError(f"run {key} arrived damaged from another machine ({err}); run it again") from None
        except OSError as err:
            raise self._cannot_write(err) from None
        finally:
            shutil.rmtree(temp.root, ignore_errors=True)
        return self.path(key)

    def sweep(self, pid: int) -> None:
        """Remove what a killed process was writing."""
        for pattern in (f".tmp-*-{pid}", f".tmp-*-{pid}-old"):
            for temp in self.root.glob(pattern):
                shutil.rmtree(temp, ignore_errors=True)

    def _cannot_write(self, err: OSError) -> RunError:
        reason = " ".join(str(err.strerror or err).split())
        return RunError(f"cannot store runs in {self.root}: {reason}; free some space or point VAMP_RUNS elsewhere")


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True


def _dump(folder: Path, result: RunResult) -> None:
    result.requests.to_parquet(folder / _REQUESTS, index=False)
    result.timeline.to_parquet(folder / _TIMELINE, index=False)
    (folder / _PREEMPTIONS).write_text(json.dumps(result.preemption_s, default=_plain), encoding="utf-8")
    with (folder / _DECISIONS).open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(record, default=_plain) + "\n" for record in result.decisions)


def _load(folder: Path, meta: dict[str, Any]) -> RunResult:
    with (folder / _DECISIONS).open(encoding="utf-8") as lines:
        decisions = [json.loads(line) for line in lines]
    return RunResult(
        requests=pd.read_parquet(folder / _REQUESTS),
        timeline=pd.read_parquet(folder / _TIMELINE),
        preemption_s=json.loads((folder / _PREEMPTIONS).read_text(encoding="utf-8")),
        decisions=decisions,
        meta=meta,
    )


def _files(base: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        path = base / name
        found = path.rglob("*") if path.is_dir() else iter([path])
        yield from (f for f in found if f.is_file() and "__pycache__" not in f.parts)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as data:
        for chunk in iter(partial(data.read, 2**20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """numpy scalars as plain numbers."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON value")
