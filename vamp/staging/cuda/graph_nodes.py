"""Staging kernels inside captured CUDA graphs, disabled while nothing is offloaded.

An empty staging kernel in each of 47 layers costs a decode step of one request 4 % (data/recorded). A kernel node of an
instantiated graph can be disabled and enabled again without a new capture: 47 of them in 0.2 ms, measured on an H200.
So graphs keep their nodes' handles, and each brings them in line right before it is replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from vamp.errors import DriverError
from vamp.memory.drivers.libcuda import checked, cu

logger = logging.getLogger("vllm.vamp")  # a child of vLLM's logger, so that it prints as vLLM does

_CALLS = (
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams",
    "cuFuncGetName",
    "cuGraphNodeSetEnabled",
)


class NodeSwitch:
    """Attributes:
    enabled: whether the kernel runs in graphs that are replayed from here on.
    n_nodes: nodes that the switch reaches, in all graphs.
    problem: why some graph always runs the kernel; "" if none does.
    """

    def __init__(self, kernel: str) -> None:
        """Args: kernel: the name of the function."""
        self.enabled = True
        self.n_nodes = 0
        self.problem = ""
        self._kernel = kernel.encode()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Graphs that are made as `torch.cuda.CUDAGraph` in this context obey the switch."""
        stock = torch.cuda.CUDAGraph
        missing = [call for call in _CALLS if not hasattr(cu, call)]
        if missing:
            self.give_up(f"this cuda-bindings has no {missing[0]}")
            yield
            return
        torch.cuda.CUDAGraph = type("CUDAGraph", (SwitchedGraph,), {"switch": self})
        try:
            yield
        finally:
            torch.cuda.CUDAGraph = stock

    def nodes(self, graph: int, instance: int) -> list[Any]:
        """The kernel's nodes in a graph; none if there is none, or if they cannot be switched.

        Args:
            graph, instance: handles of the captured graph and of what was instantiated from it.

        Raises:
            DriverError: a node was disabled, and cannot be enabled any more.
        """
        found: list[Any] = []
        try:
            found = _kernel_nodes(graph, self._kernel)
            switch_nodes(instance, found[:1], False)  # to see that it can be done
        except DriverError as err:
            self.give_up(str(err))
            switch_nodes(instance, found[:1], True)
            return []
        switch_nodes(instance, found[:1], True)
        self.n_nodes += len(found)
        return found

    def give_up(self, problem: str) -> None:
        """Not a failure: with nothing offloaded the kernel reads one number and ends."""
        if not self.problem:
            logger.warning("VAMP's staging kernels stay in CUDA graphs while nothing is offloaded: %s", problem)
        self.problem = self.problem or problem


class SwitchedGraph(torch.cuda.CUDAGraph):
    """Stands in for torch's class. Keeps what was captured, since nodes are named by it."""

    switch: ClassVar[NodeSwitch]

    def __new__(cls, keep_graph: bool = True) -> SwitchedGraph:
        made: SwitchedGraph = super().__new__(cls, True)
        return made

    def __init__(self, keep_graph: bool = True) -> None:
        super().__init__(True)
        self._nodes: list[Any] = []
        self._enabled = True

    def capture_end(self) -> None:
        """Instantiates as well, which torch leaves to the first replay when it keeps the graph."""
        super().capture_end()
        self.instantiate()
        self._nodes = self.switch.nodes(self.raw_cuda_graph(), self.raw_cuda_graph_exec())

    def replay(self) -> None:
        """Raises DriverError: the kernel is wanted and cannot be enabled; running without it would be wrong."""
        if self._enabled != self.switch.enabled and self._nodes:
            self._follow()
        super().replay()

    def _follow(self) -> None:
        """Launches that are queued already keep what they had."""
        try:
            switch_nodes(self.raw_cuda_graph_exec(), self._nodes, self.switch.enabled)
            self._enabled = self.switch.enabled
        except DriverError as err:
            switch_nodes(self.raw_cuda_graph_exec(), self._nodes, True)
            self._enabled, self._nodes = True, []
            self.switch.give_up(str(err))


def switch_nodes(instance: int, nodes: list[Any], enabled: bool) -> None:
    """Raises DriverError: the driver refused; nodes before that one are switched."""
    handle = cu.CUgraphExec(instance)
    for node in nodes:
        checked("graph node", cu.cuGraphNodeSetEnabled(handle, node, int(enabled)), f"enabled={enabled}")


def _kernel_nodes(graph: int, kernel: bytes) -> list[Any]:
    handle = cu.CUgraph(graph)
    _, n_nodes = checked("graph nodes", cu.cuGraphGetNodes(handle), f"{graph:#x}")
    nodes, _ = checked("graph nodes", cu.cuGraphGetNodes(handle, n_nodes), f"{n_nodes} nodes")
    names: dict[int, bytes] = {}
    return [node for node in nodes[:n_nodes] if _kernel_name(node, names) == kernel]


def _kernel_name(node: Any, names: dict[int, bytes]) -> bytes:
    """Empty for what is no kernel, or a kernel without a name that the driver tells."""
    if checked("graph node", cu.cuGraphNodeGetType(node)) != cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
        return b""
    error, params = cu.cuGraphKernelNodeGetParams(node)
    if error != cu.CUresult.CUDA_SUCCESS:
        return b""
    key = int(params.func)
    if key not in names:
        error, name = cu.cuFuncGetName(params.func)
        names[key] = name if error == cu.CUresult.CUDA_SUCCESS else b""
    return names[key]
