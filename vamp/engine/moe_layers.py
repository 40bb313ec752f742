"""A model's MoE layers in vLLM 0.26.0, whichever the build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.models.utils import extract_layer_index

from vamp.errors import GeometryError

WEIGHTS = ("w13_weight", "w2_weight")
"""Gate-and-up and down: the order of `ExpertGeometry.tensor_bytes`."""


def moe_layers(
    static_forward_context: dict[str, Any], n_layers: int, check: Callable[[MoERunner], object]
) -> list[MoERunner]:
    """First to last.

    Args:
        check: called with each; raises where its kernels keep the weights elsewhere.

    Raises:
        GeometryError: there are not `n_layers`.
    """
    runners = [layer for layer in static_forward_context.values() if isinstance(layer, MoERunner)]
    if len(runners) != n_layers:
        raise GeometryError(f"the model has {len(runners)} MoE layers, its configuration {n_layers}; not supported")
    runners.sort(key=lambda runner: extract_layer_index(runner.layer_name))
    for runner in runners:
        check(runner)
    return runners
