"""Workers of the live tests: random weights large enough that the experts decide the tokens.

vLLM's dummy weights are U(-1e-3, 1e-3): logits are then uniform, and tokens the same whatever the experts hold.
"""

from __future__ import annotations

from typing import Any

import vllm.model_executor.model_loader.dummy_loader as dummy_loader
from vllm.v1.worker.cpu_worker import CPUWorker

from vamp.engine.cpu_host import work_around_amx
from vamp.engine.worker import VampCPUWorker
from vamp.errors import DriverError
from vamp.memory.driver import Handle
from vamp.memory.region import bytes_at
from vamp.memory.vote import Ballot

_initialize = dummy_loader.initialize_dummy_weights


def _scaled(model: Any, model_config: Any, *args: Any, **kwargs: Any) -> None:
    _initialize(model, model_config, low=-0.3, high=0.3)


dummy_loader.initialize_dummy_weights = _scaled


class PlainWorker(CPUWorker):
    """vLLM's own, with these weights."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        work_around_amx()
        super().__init__(vllm_config, *args, **kwargs)


class VampWorker(VampCPUWorker):
    """VAMP's, with these weights and what the tests turn live."""

    _refusing = False

    def set_staging(self, mode: str, copies: bool) -> None:
        """Args: copies: False breaks staging, for the negative control: offloaded experts read as zeros."""
        memory = self.vamp
        assert memory is not None
        memory.mode = mode  # type: ignore[assignment]
        memory._copier.__dict__.pop("stage", None)
        if copies:
            return
        memory._copier.stage = lambda shards: 0  # type: ignore[method-assign]
        layout = memory.remapper.layout
        for layer in range(layout.plan.experts.n_layers):
            if n := layout.staged_shards(layer):
                for tensor in range(len(layout.plan.experts.tensor_bytes)):
                    first = layout.plan.experts.n_shards - n
                    bytes_at(memory.remapper.addresses.staging(layer, tensor, first))[:] = 0

    def refuse_maps(self, rank: int | None) -> None:
        """From now on the first page of every remap cannot be mapped on that rank; None: on no rank."""
        self._refusing = rank == self.rank

    def vamp_prepare(self, seq: int, n_groups: int) -> Ballot:
        assert self.vamp is not None
        driver = self.vamp.remapper._driver
        if self._refusing:

            def refuse(handle: Handle, address: int) -> None:
                del driver.map  # once, so that what was done can be undone
                raise DriverError(f"map: made to fail on rank {self.rank}")

            driver.map = refuse  # type: ignore[method-assign]
        return super().vamp_prepare(seq, n_groups)

    def check_memory(self) -> None:
        assert self.vamp is not None
        self.vamp.remapper.check()
