"""How experts are reached inside vLLM's MoE layers (CPU build of 0.26.0).

Expert numbers lead every weight tensor and kernels read `layer.w13_weight` and `layer.w2_weight` anew at each call, so
the tensors can move to addresses whose pages change later. The kernel itself is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.model_executor.layers.fused_moe.cpu_fused_moe import CPUFusedMOE
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

from vamp.engine.moe_layers import WEIGHTS
from vamp.errors import ConfigError, GeometryError
from vamp.memory.addresses import Addresses
from vamp.memory.driver import VmmDriver
from vamp.memory.region import bytes_at
from vamp.staging.stager import ExpertIds


class ExpertUse(Protocol):
    """Who wants to know when experts are read."""

    def before_experts(self, layer: int, experts: ExpertIds) -> None: ...
    def after_experts(self, layer: int) -> None: ...


def weight_bytes(runner: MoERunner, tensor: int) -> NDArray[np.uint8]:
    """One weight tensor as the kernel reads it, flat."""
    weight = getattr(runner.routed_experts, WEIGHTS[tensor]).data
    if not weight.is_contiguous():
        raise GeometryError(f"{runner.layer_name}.{WEIGHTS[tensor]} is not contiguous; experts must lie in one piece")
    flat: NDArray[np.uint8] = weight.view(torch.uint8).reshape(-1).numpy()
    return flat


def move_weights(runner: MoERunner, layer: int, addresses: Addresses, driver: VmmDriver) -> None:
    """Copy a layer's experts to their lasting addresses, and let go of the memory that torch gave them."""
    for tensor, name in enumerate(WEIGHTS):
        region = addresses.expert(layer, tensor)
        np.copyto(bytes_at(region), weight_bytes(runner, tensor))
        parameter = getattr(runner.routed_experts, name)
        parameter.data = driver.tensor(region, parameter.dtype, tuple(parameter.shape))


def watch(runners: Sequence[MoERunner], use: ExpertUse) -> None:
    """Call `use` around every read of experts: after the router, right before and after the kernel."""
    for layer, runner in enumerate(runners):
        kernel = kernel_of(runner)
        kernel.forward_method = _watched(kernel.forward_method, layer, use)


def _watched(forward: Callable[..., Any], layer: int, use: ExpertUse) -> Callable[..., Any]:
    def watched(module: Any, x: Any, topk_weights: Any, topk_ids: torch.Tensor, *args: Any) -> Any:
        use.before_experts(layer, topk_ids.numpy())
        try:
            return forward(module, x, topk_weights, topk_ids, *args)
        finally:
            use.after_experts(layer)

    return watched


def kernel_of(runner: MoERunner) -> CPUFusedMOE:
    """Each layer has its own.

    Raises:
        ConfigError: experts are quantized, or their sizes make vLLM keep private copies of the weights.
    """
    kernel = getattr(runner.routed_experts.quant_method, "cpu_fused_moe", None)
    if not isinstance(kernel, CPUFusedMOE) or kernel.isa == "none":
        raise ConfigError(
            f"{runner.layer_name} uses {type(kernel or runner.routed_experts.quant_method).__name__}, which keeps "
            "weights where VAMP cannot move them; use unquantized bf16 experts with sizes that are multiples of 32, "
            "and leave VLLM_CPU_SGL_KERNEL unset"
        )
    return kernel
