"""Runs on a Ray cluster: each run of a batch is one task, and its folder comes back into this machine's store.

Every node has the same checkout and environment (nothing is shipped but the spec), and traces under the same paths. A
task whose node is lost is started again on another one. Ray is optional: nothing here imports it before an address is
given.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vamp.errors import ConfigError, RunError, VampError
from vamp.experiments import worker
from vamp.experiments.spec import RunSpec
from vamp.experiments.store import RunStore, code_digest, run_key

ADDRESS = "VAMP_RAY"
NODE_LOSSES = 3
"""How often a run is started again because its node or its process was lost."""
KNOCK_S = 10.0
LIVE_CORES = 2
_AT_ONCE = 256


def address() -> str:
    """Of the cluster that runs go to, from the environment; "" for none."""
    return os.environ.get(ADDRESS, "")


class Cluster:
    """A connection to a cluster. `execute` is called from as many threads as runs shall be under way."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        own_process = {"max_calls": 1, "max_retries": NODE_LOSSES, "runtime_env": {"env_vars": worker.QUIET}}
        self._task = ray.remote(**own_process)(run_there)
        self._pending: set[Any] = set()

    @property
    def resources(self) -> dict[str, float]:
        """What the cluster has, such as {"CPU": 64, "GPU": 8}."""
        found: dict[str, float] = self._ray.cluster_resources()
        return found

    def execute(self, spec: RunSpec, row: int = 0) -> str:
        """Run a pinned spec somewhere unless it is stored by now, and return its folder here.

        Raises:
            VampError: whatever the engine refuses there.
            RunError: its node was lost too often, or its folder arrived damaged.
        """
        store, code = RunStore(), code_digest(spec.backend)
        key = run_key(spec, code)
        with store.lock(key):
            if store.read(key) is None:
                store.adopt(key, self._result(spec, code))
        return str(store.path(key))

    def _result(self, spec: RunSpec, code: str) -> bytes:
        needs = demands(spec)
        if needs["num_gpus"] > self.resources.get("GPU", 0):
            raise ConfigError(
                f"a run on {spec.platform} needs {needs['num_gpus']} GPUs, the cluster has "
                f"{self.resources.get('GPU', 0):g}; add nodes, or choose another platform"
            )
        task = self._task.options(**needs).remote(spec.model_dump_json(), code)
        self._pending.add(task)
        try:
            content: bytes = self._ray.get(task)
            return content
        except self._ray.exceptions.RayTaskError as err:
            if isinstance(err.cause, VampError):
                raise err.cause from None
            raise RunError(f"{type(err.cause).__name__}: {err.cause}") from None
        except self._ray.exceptions.RayError as err:
            why = str(err).strip().splitlines()[0] if str(err).strip() else type(err).__name__
            raise RunError(f"lost on the cluster, {NODE_LOSSES} new starts included: {why}") from None
        finally:
            self._pending.discard(task)

    def cancel(self) -> None:
        """End what runs; `execute` then raises."""
        for task in list(self._pending):
            self._ray.cancel(task, force=True)


@contextmanager
def connected(where: str) -> Iterator[Cluster]:
    """A cluster, by Ray's own form of address: `auto`, `HOST:PORT`, `ray://HOST:PORT`.

    Raises:
        ConfigError: Ray is not installed, or nothing answers there.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs the package ray; install it on every node: pip install ray") from None
    try:
        _knock(where)
        ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, namespace="vamp")
    except (OSError, ValueError, RuntimeError) as err:  # ConnectionError and TimeoutError are OSErrors
        why = " ".join(str(err).split())[:200]
        raise ConfigError(f"no Ray cluster at {where!r} ({why}); start one with: ray start --head") from None
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _knock(where: str) -> None:
    """Raises OSError: nothing listens at HOST:PORT. Ray itself would try for minutes."""
    host, sign, port = where.removeprefix("ray://").rpartition(":")
    if sign and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=KNOCK_S).close()


def threads(n_runs: int) -> ThreadPoolExecutor:
    """One thread per run under way; they only wait."""
    return ThreadPoolExecutor(min(_AT_ONCE, n_runs), thread_name_prefix="vamp-ray")


def demands(spec: RunSpec) -> dict[str, int]:
    """What a node must have free: one core for a simulation, cores for a live server, the platform's GPUs."""
    if spec.backend == "sim":
        return {"num_cpus": 1, "num_gpus": 0}
    from vamp.live.platform import load_live_platform

    gpus = load_live_platform(spec.platform).tp if spec.backend == "cuda" else 0
    return {"num_cpus": LIVE_CORES, "num_gpus": gpus}


def run_there(spec_json: str, code: str) -> bytes:
    """On a node: run, and pack the run's folder.

    Raises:
        ConfigError: the node has another version of this code, so that its runs would not be the ones asked for.
        VampError: whatever the engine refuses.
    """
    spec = RunSpec.model_validate_json(spec_json)
    own = code_digest(spec.backend)
    if own != code:
        raise ConfigError(
            f"node {os.uname().nodename} has another version of vamp; bring every node to the same commit"
        )
    with tempfile.TemporaryDirectory(prefix="vamp-run-") as folder:
        os.environ["VAMP_RUNS"] = folder
        path = Path(worker.execute(spec))
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(path, arcname=".")
        return packed.getvalue()
