"""One rank's memory while it serves: remaps between steps, stages experts during them. Knows no vLLM.

    begin_step -> [before_experts -> kernel -> after_experts] for every MoE layer -> begin_step -> ...

and between two steps, whenever the scheduler asks: prepare -> finish.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from vamp.config import StagingMode
from vamp.errors import InvariantError
from vamp.memory.remapper import Remapper
from vamp.memory.vote import Ballot, Verdict
from vamp.staging.choose import Mode, StagingCosts, choose_mode
from vamp.staging.measure import measure_costs
from vamp.staging.stager import Copier, ExpertIds, Stager

logger = logging.getLogger("vllm.vamp")  # a child of vLLM's logger, so that it prints as vLLM does


@dataclass(frozen=True, slots=True)
class RankStats:
    """Attributes:
    remaps, failed: remaps that were committed, and that were not.
    remap_s: time that this rank spent on them.
    steps: steps with tokens while something was offloaded, by staging mode.
    """

    n_groups: int
    capacity_blk: int
    remaps: int
    failed: int
    remap_s: float
    staged_bytes: int
    host_checksum: int
    steps: dict[Mode, int]


class RankMemory:
    """Attributes:
    remapper: boundary and addresses.
    mode: staging mode for the steps to come; "auto" chooses anew in each.
    costs: what "auto" compares with; measured at the start.
    """

    _holds = False
    """Whether a growth is held: see `Remapper`."""

    def __init__(
        self,
        remapper: Remapper,
        copier: Copier,
        stagers: Mapping[Mode, Stager],
        *,
        mode: StagingMode,
        top_k: int,
        costs: StagingCosts | None = None,
    ) -> None:
        self.remapper, self.mode = remapper, mode
        self._copier, self._stagers, self._top_k = copier, stagers, top_k
        self._using: Mode = "whole_region"
        self._steps: dict[Mode, int] = dict.fromkeys(stagers, 0)
        self._seq, self._remaps, self._failed, self._remap_s = 0, 0, 0, 0.0
        self.costs = costs or measure_costs(copier, remapper.layout)

    # a step

    def begin_step(self, n_tok: int) -> None:
        """Prepare staging for a step with that many tokens."""
        self._stagers[self._using].drain()
        if n_tok and self.remapper.n_groups:
            self._using = self._choose(n_tok)
            self._steps[self._using] += 1
            self._stagers[self._using].begin_step()

    def before_experts(self, layer: int, experts: ExpertIds) -> None:
        """See `Stager`."""
        self._stagers[self._using].before_experts(layer, experts)

    def after_experts(self, layer: int) -> None:
        """See `Stager`."""
        self._stagers[self._using].after_experts(layer)

    def _choose(self, n_tok: int) -> Mode:
        if self.mode != "auto":
            return self.mode
        experts = self.remapper.layout.plan.experts
        most = self.remapper.offloaded(experts.resident_layers)
        return choose_mode(
            n_tok=n_tok,
            n_offloaded=most.last - most.first,
            n_experts=experts.n_shards,
            top_k=self._top_k,
            expert_bytes=experts.shard_bytes,
            costs=self.costs,
        )

    # a remap

    def prepare(self, seq: int, n_groups: int) -> Ballot:
        """See `Remapper.prepare`.

        Raises:
            InvariantError: a remap was missed.
            FatalRemapError: it failed and could not be undone; stop this rank.
        """
        if seq != self._seq + 1:
            raise InvariantError(f"remap {seq} follows remap {self._seq}; one was missed")
        self._seq = seq
        started = time.perf_counter()
        self._stagers[self._using].drain()
        ballot = self.remapper.prepare(seq, n_groups, self._settle, hold=self._holds)
        self._remap_s += time.perf_counter() - started
        return ballot

    def _settle(self) -> None:
        """Return when no kernel reads experts or KV cache; on the CPU none does between two steps."""

    def finish(self, verdict: Verdict) -> int:
        """See `Remapper.finish`; experts that came back get their weights. Returns the groups offloaded now."""
        started = time.perf_counter()
        for shards in self.remapper.finish(verdict):
            self._copier.restore(shards)
        self._remap_s += time.perf_counter() - started
        if verdict.commit:
            self._remaps += 1
            logger.debug("%s", verdict)
        else:
            self._failed += 1
            logger.warning("VAMP rank %d moved no pages: %s", self.remapper.rank, verdict.reason)
        return self.remapper.n_groups

    # what is going on

    def stats(self) -> RankStats:
        """O(host copies), for the checksum."""
        return RankStats(
            n_groups=self.remapper.n_groups,
            capacity_blk=self.remapper.capacity_blk,
            remaps=self._remaps,
            failed=self._failed,
            remap_s=self._remap_s,
            staged_bytes=self._copier.staged_bytes,
            host_checksum=self._copier.checksum(),
            steps=dict(self._steps),
        )

    def close(self) -> None:
        """Give all memory back. Weights and KV tensors are void from here on."""
        self._stagers[self._using].drain()
        self.remapper.close()
