"""A captured graph's staging kernels run or not as the switch says, without a new capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

    from vamp.calibrate.rig import Rig
    from vamp.staging.cuda.graph_nodes import NodeSwitch

LAYERS = (1, 2)


@pytest.fixture
def switch() -> NodeSwitch:
    from vamp.staging.cuda.graph_nodes import NodeSwitch
    from vamp.staging.cuda.kernel import NAME

    return NodeSwitch(NAME)


def some_ids() -> torch.Tensor:
    import torch

    return torch.zeros((40, 1), dtype=torch.int32, device="cuda")


def capture(rig: Rig, switch: NodeSwitch) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph of staging kernels between two others, and what the last one counts: replays."""
    import torch

    ids, count = some_ids(), torch.zeros(1, device="cuda")
    count.add_(0)  # kernels are loaded at their first launch, which capture does not like
    for layer in LAYERS:
        rig.routed.before_experts(layer, ids)
    with switch.capturing():
        graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        count.add_(1)
        for layer in LAYERS:
            rig.routed.before_experts(layer, ids)
        count.add_(1)
    return graph, count


def launched(rig: Rig, graph: torch.cuda.CUDAGraph) -> int:
    """Kernels that one replay ran."""
    rig.routed.forget_counts()
    graph.replay()
    return sum(rig.routed.launches())


def test_every_staging_kernel_is_found(rig: Rig, switch: NodeSwitch) -> None:
    capture(rig, switch)
    assert (switch.n_nodes, switch.problem) == (len(LAYERS), "")


def test_two_graphs_follow_the_switch_between_replays(rig: Rig, switch: NodeSwitch) -> None:
    rig.remap(rig.remapper.layout.plan.limit_groups)
    (first, count), (second, _) = capture(rig, switch), capture(rig, switch)
    assert launched(rig, first) == launched(rig, second) == len(LAYERS)
    switch.enabled = False
    assert launched(rig, first) == launched(rig, second) == 0
    switch.enabled = True
    assert launched(rig, first) == launched(rig, second) == len(LAYERS)
    for enabled in (False, True, True, False, False, True):
        switch.enabled = enabled
        assert [launched(rig, graph) for graph in (second, first)] == [enabled * len(LAYERS)] * 2
    assert count.item() == 2 * 9  # other kernels ran in every replay


def test_launches_that_are_queued_keep_what_they_had(rig: Rig, switch: NodeSwitch) -> None:
    rig.remap(rig.remapper.layout.plan.limit_groups)
    graph, _ = capture(rig, switch)
    rig.routed.forget_counts()
    for enabled in (True, False, True, False):
        switch.enabled = enabled
        graph.replay()
    assert sum(rig.routed.launches()) == 2 * len(LAYERS)


def test_a_kernel_of_another_name_is_left_alone(rig: Rig) -> None:
    from vamp.staging.cuda.graph_nodes import NodeSwitch

    other = NodeSwitch("no_such_kernel")
    rig.remap(rig.remapper.layout.plan.limit_groups)
    graph, _ = capture(rig, other)
    other.enabled = False
    assert (launched(rig, graph), other.n_nodes, other.problem) == (len(LAYERS), 0, "")


def test_bindings_without_the_calls_are_no_failure(
    rig: Rig, switch: NodeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vamp.staging.cuda import graph_nodes

    monkeypatch.setattr(graph_nodes, "_CALLS", (*graph_nodes._CALLS, "cuNoSuchCall"))
    rig.remap(rig.remapper.layout.plan.limit_groups)
    graph, _ = capture(rig, switch)
    switch.enabled = False
    assert launched(rig, graph) == len(LAYERS)
    assert "cuNoSuchCall" in switch.problem


@pytest.mark.parametrize("later", [False, True])
def test_a_driver_that_refuses_is_no_failure(
    rig: Rig, switch: NodeSwitch, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """When the graph is captured, or only later: then the kernels stay enabled, and run whenever they are wanted."""
    from vamp.errors import DriverError
    from vamp.staging.cuda import graph_nodes

    def refuse(call: str, result: tuple[object, ...], value: str = "") -> object:
        if value == "enabled=False":
            raise DriverError("graph node: refused")
        return checked(call, result, value)

    checked = graph_nodes.checked
    rig.remap(rig.remapper.layout.plan.limit_groups)
    if later:
        graph, _ = capture(rig, switch)
        monkeypatch.setattr(graph_nodes, "checked", refuse)
    else:
        monkeypatch.setattr(graph_nodes, "checked", refuse)
        graph, _ = capture(rig, switch)
    for enabled in (False, True, False):
        switch.enabled = enabled
        assert launched(rig, graph) == len(LAYERS)
    assert "refused" in switch.problem


def test_torchs_own_class_is_back_afterwards(switch: NodeSwitch) -> None:
    import torch

    stock = torch.cuda.CUDAGraph
    with pytest.raises(RuntimeError, match="stop"), switch.capturing():
        assert torch.cuda.CUDAGraph is not stock
        raise RuntimeError("stop")
    assert torch.cuda.CUDAGraph is stock
