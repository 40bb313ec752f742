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

from vamp.engine.moe_layers import WEIGHTS
from vamp.engine.worker_cuda import VampCUDAWorker

SCALE = 100
SHIFT = 17
"""Experts of layer i are those of layer 0, moved on by SHIFT * i."""


WIDTH = 1e-3
"""vLLM's dummy weights are U(-WIDTH, WIDTH). As FP8 nearly all of them would be 0, and their scales of either sign."""
SEED = 1234


def _tell_apart(model: torch.nn.Module, static_forward_context: dict[str, Any]) -> None:
    for module in model.modules():
        if any(parameter.dtype is torch.float8_e4m3fn for parameter in module.parameters(recurse=False)):
            _fill_fp8(module)
    for runner in (layer for layer in static_forward_context.values() if isinstance(layer, MoERunner)):
        shift = SHIFT * extract_layer_index(runner.layer_name)
        for name, parameter in runner.routed_experts.named_parameters(recurse=False):
            weight = parameter.data
            if weight.dtype is torch.float8_e4m3fn:
                as_bytes = weight.view(torch.uint8)  # torch rolls no FP8
                as_bytes.copy_(as_bytes.roll(shift, dims=0))
            elif name in WEIGHTS:
                weight.copy_(weight.roll(shift, dims=0).mul_(SCALE))
            elif "weight_scale" in name:
                weight.copy_(weight.roll(shift, dims=0))
    torch.cuda.empty_cache()


def _fill_fp8(module: torch.nn.Module) -> None:
    """Values U(-1, 1) with scales that make them as wide as unquantized ones, different in each block or expert."""
    for name, parameter in module.named_parameters(recurse=False):
        generator = torch.Generator(parameter.device).manual_seed(SEED)
        if parameter.dtype is torch.float8_e4m3fn:
            values = torch.empty(parameter.shape, dtype=torch.float16, device=parameter.device)
            parameter.data.copy_(values.uniform_(-1, 1, generator=generator))
        elif "weight_scale" in name:
            width = WIDTH * (SCALE if name.startswith(("w13_", "w2_")) else 1)
            parameter.data.uniform_(0.5 * width, 1.5 * width, generator=generator)


class PlainWorker(Worker):
    """vLLM's own, with these weights."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        _tell_apart(self.get_model(), self.compilation_config.static_forward_context)


class VampWorker(VampCUDAWorker):
    """VAMP's, with these weights."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        _tell_apart(self.get_model(), self.compilation_config.static_forward_context)
