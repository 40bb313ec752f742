"""Workers of the live tests: random weights large enough that the experts decide the tokens.

vLLM's dummy weights are U(-1e-3, 1e-3): logits are then uniform, and tokens the same whatever the experts hold.
"""

from __future__ import annotations

from typing import Any

import torch
import vllm.model_executor.model_loader.dummy_loader as dummy_loader
from vllm.v1.worker.cpu_worker import CPUWorker

from vamp.engine.worker import VampCPUWorker
from vamp.memory.region import bytes_at

_initialize = dummy_loader.initialize_dummy_weights


def _scaled(model: Any, model_config: Any, *args: Any, **kwargs: Any) -> None:
    _initialize(model, model_config, low=-0.3, high=0.3)


dummy_loader.initialize_dummy_weights = _scaled

# On hosts with AMX, vLLM 0.26.0's GDN and MoE kernels each set up the tiles, and Qwen3-Next dies of an illegal
# instruction, with VAMP or without. Both systems run here as on a host without AMX.
torch.cpu._is_amx_tile_supported = lambda: False


class PlainWorker(CPUWorker):
    """vLLM's own, with these weights."""


class VampWorker(VampCPUWorker):
    """VAMP's, with these weights and what the tests turn live."""

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

    def check_memory(self) -> None:
        assert self.vamp is not None
        self.vamp.remapper.check()
