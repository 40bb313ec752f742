"""One rank's memory where steps are queued on a stream and a step may be a CUDA graph. Knows no vLLM.

    begin_step -> before_forward -> [before_experts -> kernels -> after_experts] for every MoE layer -> ...

What a growing pool costs a running decode: `prepare` and `finish` are called while the step before may still run, and
do not wait for it, unless the growth is large. They map pages at the KV tails, and queue the zeroing of these pages.
The pages' addresses at the experts stay as they are until `before_forward`, right before the next forward pass is
queued; so the work of the host for that step goes on beside the running one.

Why no kernel reads an expert through its old address once its page is KV cache: only forward passes read experts, and
all work is on one stream. The passes queued before `finish` come before the zeroing, which is the first write to the
page, in stream order. No pass is queued between `finish` and `before_forward`; there the processor waits for the event
that was recorded behind the zeroing, and then moves the addresses. What is queued in between (input preparation, copies
of recurrent states into new blocks) finds zeroed pages and reads no expert.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from vamp.config import StagingMode
from vamp.engine.worker_memory import RankMemory, RankStats
from vamp.memory.driver import VmmDriver
from vamp.memory.remapper import Remapper
from vamp.memory.spans import N_STAGING_BUFFERS, ShardRange
from vamp.memory.vote import Ballot, Verdict
from vamp.staging.choose import Mode
from vamp.staging.cuda.copier import CudaCopier
from vamp.staging.cuda.graph_nodes import NodeSwitch
from vamp.staging.cuda.kernel import NAME
from vamp.staging.cuda.measure import measure_costs
from vamp.staging.cuda.routed import ALL_TOK, CudaRouted
from vamp.staging.cuda.whole_region import CudaWholeRegion

HELD_GROUPS = 32
"""A larger growth is completed at once. On one H200 a growth by 1.1 GiB (188 groups) paused a decode for 101 ms when it
was held and for 55 to 64 ms when it was not; one by 24 MiB (4 groups) for 2.1 to 3.1 against 3.1 to 6.8 ms."""


class CudaRankMemory(RankMemory):
    """Attributes:
    routed: what the graphs launch.
    copier: host copies.
    switch: whether the graphs' staging kernels run.
    real_rows_only: stage what a step's own tokens chose, and not what the rows chose that pad it to a graph's size.
    """

    def __init__(
        self,
        remapper: Remapper,
        copier: CudaCopier,
        driver: VmmDriver,
        device: int,
        *,
        mode: StagingMode,
        top_k: int,
        graph_tok: int,
        real_rows_only: bool = True,
    ) -> None:
        """Args:
        graph_tok: steps with up to that many tokens are CUDA graphs; 0 where there are none.
        real_rows_only: False where a row's result depends on other rows.
        """
        self.routed, self.copier = CudaRouted(remapper, copier, device), copier
        self.switch, self.real_rows_only = NodeSwitch(NAME), real_rows_only
        self._cuda_stagers: dict[Mode, CudaRouted | CudaWholeRegion] = {
            "whole_region": CudaWholeRegion(remapper, copier, self.routed, device),
            "routed": self.routed,
        }
        self._graph_tok, self._serving = graph_tok, False
        self._finished = torch.cuda.Event()
        costs = measure_costs(remapper, copier, self.routed, driver)
        if real_rows_only:
            _fill_staging_buffers(remapper, copier)
        super().__init__(remapper, copier, self._cuda_stagers, mode=mode, top_k=top_k, costs=costs)
        self._follow()

    # a step

    def begin_step(self, n_tok: int) -> None:
        self._serving = True
        super().begin_step(n_tok)
        if n_tok and self.remapper.n_groups:
            self.routed.stage_tokens(n_tok if self.real_rows_only else ALL_TOK)

    def before_forward(self) -> None:
        """Called when everything that a forward pass needs is queued, and nothing of the pass itself.

        Raises:
            FatalRemapError: a remap that all ranks committed could not be completed.
        """
        self.leave()

    def before_experts(self, layer: int, experts: Any) -> None:
        """Warm-up and capture always launch the kernel; a step outside graphs only if there is something to do."""
        if self.remapper.n_groups or not self._serving:
            super().before_experts(layer, experts)

    def before_down(self, layer: int) -> None:
        """Between the projections of a MoE layer."""
        self._cuda_stagers[self._using].before_down(layer)

    def _choose(self, n_tok: int) -> Mode:
        return "routed" if n_tok <= self._graph_tok else super()._choose(n_tok)

    # a remap

    def _settle(self) -> None:
        """Waits for the steps that are queued, and for no other stream."""
        self._finished.record()
        self._finished.synchronize()

    def prepare(self, seq: int, n_groups: int) -> Ballot:
        """Raises FatalRemapError: besides what `RankMemory.prepare` does, the growth before could not be completed."""
        self._holds = 0 <= n_groups - self.remapper.n_groups <= HELD_GROUPS
        if not self._holds:
            self.leave()  # growth upon growth may wait together; giving back may not
        return super().prepare(seq, n_groups)

    def finish(self, verdict: Verdict) -> int:
        n_groups = super().finish(verdict)
        if self.remapper.held:
            self._finished.record()
        else:
            self._follow()
        return n_groups

    def leave(self) -> None:
        """Complete the growth that is held, if there is one.

        Raises:
            FatalRemapError: it could not be.
        """
        if not self.remapper.held:
            return
        self._finished.synchronize()
        started = time.perf_counter()
        self.remapper.leave()
        self._follow()
        self._remap_s += time.perf_counter() - started

    def _follow(self) -> None:
        """Kernels that are queued from here on see the boundary."""
        self.routed.follow_boundary()
        self.switch.enabled = self.remapper.n_groups > 0

    # what is going on

    def stats(self) -> RankStats:
        """Completes what is held, and waits for the device."""
        self.leave()
        stats = super().stats()
        shard_bytes = self.remapper.layout.plan.experts.shard_bytes
        return replace(stats, staged_bytes=stats.staged_bytes + sum(self.routed.staged_shards()) * shard_bytes)

    def close(self) -> None:
        self.leave()
        super().close()


def _fill_staging_buffers(remapper: Remapper, copier: CudaCopier) -> None:
    """With weights of some layer: what a row that pads a graph chose is not staged, so it reads what is there.

    NaN, which a fresh buffer holds, would go on to the router of the next layer, and no router ranks NaN.
    """
    experts = remapper.layout.plan.experts
    for layer in range(experts.n_layers - min(N_STAGING_BUFFERS, experts.eligible_layers), experts.n_layers):
        copier.stage(ShardRange(layer, copier.kept_from(layer), experts.n_shards))
    copier.bulk_bytes = 0
