"""Workers of the checks: random experts that decide the tokens, different in every layer.

vLLM's dummy weights are U(-1e-3, 1e-3), too small for the experts to matter, and the same in every layer, since the
seed is the parameter's: an expert of another layer in the staging buffer would not be noticed.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.worker.gpu_worker import Worker

from vamp.engine.worker_cuda import VampCUDAWorker

SCALE = 100
SHIFT = 17
"""Experts of layer i are those of layer 0, moved on by SHIFT * i."""


def _tell_apart(static_forward_context: dict[str, Any]) -> None:
    for runner in (layer for layer in static_forward_context.values() if isinstance(layer, MoERunner)):
        shift = SHIFT * extract_layer_index(runner.layer_name)
        for name in ("w13_weight", "w2_weight"):
            weight = getattr(runner.routed_experts, name).data
            weight.copy_(weight.roll(shift, dims=0).mul_(SCALE))
    torch.cuda.empty_cache()


class PlainWorker(Worker):
    """vLLM's own, with these weights."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        _tell_apart(self.compilation_config.static_forward_context)


class VampWorker(VampCUDAWorker):
    """VAMP's, with these weights."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        _tell_apart(self.compilation_config.static_forward_context)
