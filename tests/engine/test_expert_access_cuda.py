"""Which of vLLM's MoE layers VAMP takes on CUDA, and when it is told that their experts are read. Needs no device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.model_executor.layers.fused_moe.experts.marlin_moe import MarlinExperts
from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod
from vllm.model_executor.layers.quantization.online.fp8 import Fp8PerTensorOnlineMoEMethod

from vamp.engine import expert_access_cuda as expert_access
from vamp.errors import ConfigError, GeometryError


def runner(method: type, kernels: type = TritonExperts, **settings: Any) -> Any:
    """A MoE layer as vLLM makes it, as far as VAMP looks, without weights."""
    quant_method = method.__new__(method)
    if isinstance(quant_method, torch.nn.Module):
        torch.nn.Module.__init__(quant_method)
    vars(quant_method).update(settings, moe_kernel=SimpleNamespace(fused_experts=kernels.__new__(kernels)))
    experts = SimpleNamespace(quant_method=quant_method, local_num_experts=4, forward_modular=None)
    return SimpleNamespace(routed_experts=experts, layer_name="model.layers.1.mlp.experts")


@pytest.mark.parametrize("method", [UnquantizedFusedMoEMethod, Fp8MoEMethod])
def test_triton_kernels_are_served(method: type) -> None:
    assert type(expert_access.kernels_of(runner(method))) is TritonExperts


@pytest.mark.parametrize(
    ("method", "kernels", "named"),
    [
        (Fp8MoEMethod, MarlinExperts, "Fp8MoEMethod with MarlinExperts"),
        (UnquantizedFusedMoEMethod, MarlinExperts, "UnquantizedFusedMoEMethod with MarlinExperts"),
        (Fp8PerTensorOnlineMoEMethod, TritonExperts, "Fp8PerTensorOnlineMoEMethod with TritonExperts"),
    ],
)
def test_others_are_refused_in_one_line(method: type, kernels: type, named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named}.*--moe-backend triton, or --ratio 0") as refused:
        expert_access.kernels_of(runner(method, kernels))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("block_quant", "scheme", "independent"),
    [(True, "dynamic", True), (False, "static", True), (False, "dynamic", False)],
)
def test_one_scale_over_all_rows_makes_them_depend(block_quant: bool, scheme: str, independent: bool) -> None:
    fp8 = runner(Fp8MoEMethod, block_quant=block_quant, quant_config=SimpleNamespace(activation_scheme=scheme))
    assert expert_access.rows_are_independent(fp8) is independent
    assert expert_access.rows_are_independent(runner(UnquantizedFusedMoEMethod))


def test_fp8_waits_for_both_projections_before_its_kernels() -> None:
    """They fuse the activation with what follows, so that nothing is called between the projections."""
    calls: list[str] = []
    use = SimpleNamespace(
        before_experts=lambda layer, experts: calls.append("experts"),
        before_down=lambda layer: calls.append("down"),
        after_experts=lambda layer: calls.append("after"),
    )
    for method in (UnquantizedFusedMoEMethod, Fp8MoEMethod):
        layer = runner(method)
        layer.routed_experts.forward_modular = lambda topk_ids: calls.append("kernels")
        expert_access.watch([layer], use)
        layer.routed_experts.forward_modular(topk_ids=torch.zeros(1, 1))
    assert calls == ["experts", "kernels", "after", "experts", "down", "kernels", "after"]


def test_weights_without_the_experts_first_are_refused() -> None:
    layer = runner(Fp8MoEMethod)
    layer.routed_experts.w13_weight = torch.nn.Parameter(torch.zeros(8, 4, 2), requires_grad=False)
    unused: Any = None
    with pytest.raises(GeometryError, match=r"w13_weight has shape \(8, 4, 2\), and not 4 experts first"):
        expert_access.move_layer(layer, 1, unused, unused, unused)
