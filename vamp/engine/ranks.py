"""How the scheduler has all ranks move the boundary: prepare everywhere, vote here, finish everywhere.

The calls are made inside the decision, before any block that depends on them is handed out. So a rank that cannot
remap costs nothing but the attempt: no rank commits, and the decision falls to another plan. They queue behind the
steps that ranks still run, which makes them step boundaries on every rank. On CUDA they do not wait for these steps to
end: what must wait is done before the next forward pass (vamp.engine.worker_memory_cuda), and failing there is fatal.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Protocol

from vamp.errors import ConfigError, InvariantError
from vamp.memory.vote import Ballot, Verdict, vote

READY, PREPARE, FINISH = "vamp_ready", "vamp_prepare", "vamp_finish"
"""Methods of VAMP's workers."""

_NOT_OURS = (
    "the scheduler is VAMP's and the workers are not; pass --worker-cls vamp.engine.worker_cuda.VampCUDAWorker "
    "(vamp.engine.worker.VampCPUWorker with the CPU build), or use vamp serve"
)


class Ranks(Protocol):
    def remap(self, n_groups: int) -> Verdict:
        """Have `n_groups` offloaded on all ranks, or nothing changed on any."""


class ExecutorRanks:
    """The workers behind a vLLM executor (multiprocess, in-process or Ray)."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._seq = 0

    def check_ready(self) -> None:
        """At start rather than at the first shortage, hours later.

        Raises:
            ConfigError: some worker is not VAMP's.
        """
        try:
            ready = self._executor.collective_rpc(READY)
        except Exception as err:  # what it is depends on the executor: the method is not there
            raise ConfigError(f"{_NOT_OURS}: {err}") from err
        if not all(ready):
            raise ConfigError(f"{_NOT_OURS}: {ready.count(False)} of {len(ready)} serve without VAMP")

    def remap(self, n_groups: int) -> Verdict:
        """Raises:
        RuntimeError: from the executor, when a rank died or could not undo its part; the engine stops.
        InvariantError: ranks finished differently.
        """
        self._seq += 1
        ballots: list[Ballot] = self._executor.collective_rpc(PREPARE, args=(self._seq, n_groups))
        verdict = vote(ballots, len(ballots))
        ends = self._executor.collective_rpc(FINISH, args=(verdict,))
        if len(set(ends)) > 1:
            raise InvariantError(f"ranks ended remap {self._seq} with {ends} groups; they must be equal")
        return verdict


def ranks_of_engine_core() -> ExecutorRanks | None:
    """The ranks of the engine core that is building its scheduler right now; None outside one (the simulator).

    vLLM 0.26.0 makes its executor before its scheduler but does not hand it over (v1/engine/core.py:118-160), so it is
    taken from the caller that builds both.
    """
    from vllm.v1.engine.core import EngineCore

    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, EngineCore):
            return ExecutorRanks(owner.model_executor)
        frame = frame.f_back
    return None
