"""How experts are reached inside vLLM's MoE layers on CUDA (0.26.0, Triton experts, unquantized or FP8).

Expert numbers lead both weight tensors, and the kernels take `w13_weight` and `w2_weight` from the layer at every call,
so the tensors can move to addresses whose pages change later. Scales of FP8 weights, by block or by expert, stay where
they are: the same expert numbers find them. The kernels themselves are not touched. The MoE layer is
an opaque operator to torch.compile: what is hooked in here runs at every call outside CUDA graphs, and is captured with
the kernels inside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod

from vamp.engine.moe_layers import WEIGHTS
from vamp.errors import ConfigError, GeometryError
from vamp.memory.addresses import Addresses
from vamp.memory.driver import VmmDriver
from vamp.staging.cuda.copier import CudaCopier


class ExpertUse(Protocol):
    """Who wants to know when experts are read."""

    def before_experts(self, layer: int, experts: Any) -> None: ...
    def before_down(self, layer: int) -> None: ...
    def after_experts(self, layer: int) -> None: ...


def move_layer(runner: MoERunner, layer: int, addresses: Addresses, driver: VmmDriver, copier: CudaCopier) -> None:
    """Copy a layer's experts to their lasting addresses and their host copies, and free what torch gave them.

    Raises:
        GeometryError: weights of another size than the plan says, or not in one piece.
    """
    for tensor, name in enumerate(WEIGHTS):
        parameter = getattr(runner.routed_experts, name)
        if not parameter.data.is_contiguous():
            raise GeometryError(f"{runner.layer_name}.{name} is not contiguous; experts must lie in one piece")
        if parameter.shape[0] != runner.routed_experts.local_num_experts:
            raise GeometryError(
                f"{runner.layer_name}.{name} has shape {tuple(parameter.shape)}, and not "
                f"{runner.routed_experts.local_num_experts} experts first; serve with --ratio 0"
            )
        region = addresses.expert(layer, tensor)
        if parameter.data.nbytes != region.nbytes:
            raise GeometryError(
                f"{runner.layer_name}.{name} has {parameter.data.nbytes} B, {region.nbytes} B were expected: this "
                "model or its quantization is not supported; serve with --ratio 0"
            )
        moved = driver.tensor(region, parameter.dtype, tuple(parameter.shape))
        moved.copy_(parameter.data)
        copier.take(layer, tensor, region)
        parameter.data = moved
    torch.cuda.empty_cache()  # waits for the copies, and makes room for the next layer's pages


def watch(runners: Sequence[MoERunner], use: ExpertUse) -> None:
    """Call `use` around every read of experts: after the router, between the projections, after the kernels."""
    for layer, runner in enumerate(runners):
        experts = runner.routed_experts
        # FP8 kernels may fuse the activation with what follows, and then nothing is called between the projections.
        down_early = isinstance(experts.quant_method, Fp8MoEMethod)
        experts.forward_modular = _watched(experts.forward_modular, layer, use, down_early)
        kernels = kernels_of(runner)
        kernels.activation = _announced(kernels.activation, layer, use)


def _watched(forward: Callable[..., Any], layer: int, use: ExpertUse, down_early: bool) -> Callable[..., Any]:
    def watched(*args: Any, topk_ids: torch.Tensor, **kwargs: Any) -> Any:
        use.before_experts(layer, topk_ids)
        if down_early:
            use.before_down(layer)
        try:
            return forward(*args, topk_ids=topk_ids, **kwargs)
        finally:
            use.after_experts(layer)

    return watched


def _announced(activation: Callable[..., Any], layer: int, use: ExpertUse) -> Callable[..., Any]:
    """The activation runs between the two projections."""

    def announced(*args: Any, **kwargs: Any) -> Any:
        use.before_down(layer)
        return activation(*args, **kwargs)

    return announced


def kernels_of(runner: MoERunner) -> TritonExperts:
    """Each layer has its own.

    Raises:
        ConfigError: experts are quantized in another way, or their kernels shuffle weights or keep them elsewhere.
    """
    method = runner.routed_experts.quant_method
    kernels = getattr(getattr(method, "moe_kernel", None), "fused_experts", None)
    if not isinstance(method, UnquantizedFusedMoEMethod | Fp8MoEMethod) or type(kernels) is not TritonExperts:
        raise ConfigError(
            f"{runner.layer_name} uses {type(method).__name__} with {type(kernels).__name__}; VAMP serves unquantized "
            "and FP8 (quant_method fp8) checkpoints with vLLM's Triton kernels: pass --moe-backend triton, or --ratio 0"
        )
    return kernels


def rows_are_independent(runner: MoERunner) -> bool:
    """Whether a token's result depends on its own row alone.

    It does not where one activation scale is found over all rows: what rows without a token hold then counts, too.
    """
    method = runner.routed_experts.quant_method
    if not isinstance(method, Fp8MoEMethod):
        return True
    return bool(method.block_quant or method.quant_config.activation_scheme == "static")
