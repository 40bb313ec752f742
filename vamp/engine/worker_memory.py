"""One rank's memory while it serves: remaps at step boundaries, stages experts during the step. Knows no vLLM.

begin_step -> [before_experts -> kernel -> after_experts] for every MoE layer -> begin_step -> ...
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vamp.config import StagingMode
from vamp.engine.command import RemapCommand
from vamp.errors import FatalRemapError, InvariantError
from vamp.memory.remapper import Remapper
from vamp.memory.spans import ShardRange
from vamp.memory.vote import Ballot, vote
from vamp.staging.choose import Mode, StagingCosts, choose_mode
from vamp.staging.host_weights import HostCopier, HostWeights
from vamp.staging.routed import Routed
from vamp.staging.stager import ExpertIds, Stager
from vamp.staging.whole_region import WholeRegion

logger = logging.getLogger("vllm.vamp")  # a child of vLLM's logger, so that it prints as vLLM does

Gather = Callable[[Ballot], Sequence[Ballot]]
"""Sends this rank's ballot to all ranks; returns the ballots of all, in the same order everywhere."""


@dataclass(frozen=True, slots=True)
class RankStats:
    """Attributes:
    steps: steps with tokens while something was offloaded, by staging mode.
    """

    n_groups: int
    capacity_blk: int
    remaps: int
    remap_s: float
    staged_bytes: int
    host_checksum: int
    steps: dict[Mode, int]


class RankMemory:
    """Attributes:
    remapper: boundary and addresses.
    mode: staging mode for the steps to come; "auto" chooses anew in each.
    costs: what "auto" compares with.
    """

    def __init__(self, remapper: Remapper, host: HostWeights, gather: Gather, *, mode: StagingMode, top_k: int) -> None:
        experts = remapper.layout.plan.experts
        self.remapper, self.mode = remapper, mode
        self._host, self._gather, self._top_k = host, gather, top_k
        self._copier = HostCopier(host, remapper.addresses, len(experts.tensor_bytes))
        self._stagers: dict[Mode, Stager] = {
            "whole_region": WholeRegion(remapper, self._copier),
            "routed": Routed(remapper, self._copier),
        }
        self._using: Mode = "whole_region"
        self._steps: dict[Mode, int] = dict.fromkeys(self._stagers, 0)
        self._seq, self._remaps, self._remap_s = 0, 0, 0.0
        self.costs = self._measure_costs()

    def _copied(self, layer: int) -> ShardRange:
        experts = self.remapper.layout.plan.experts
        n = self.remapper.layout.staged_shards(layer)
        return ShardRange(layer, experts.n_shards - n, experts.n_shards)

    def _measure_costs(self) -> StagingCosts:
        """Copying speed of this host, from the host copies to a staging buffer."""
        last = self.remapper.layout.plan.experts.n_layers - 1
        shards = self._copied(last)
        if shards.first == shards.last:
            return StagingCosts(1.0, 1.0)
        whole = self._timed_bytes_per_s(shards)
        single = self._timed_bytes_per_s(ShardRange(last, shards.last - 1, shards.last))
        return StagingCosts(bulk_bytes_per_s=whole, routed_bytes_per_s=single)

    def _timed_bytes_per_s(self, shards: ShardRange) -> float:
        self._copier.stage(shards)  # warms the pages
        started = time.perf_counter()
        n = self._copier.stage(shards)
        return n / max(time.perf_counter() - started, 1e-9)

    # a step

    def begin_step(self, command: RemapCommand | None, n_tok: int) -> None:
        """Carry out the command that rides on this step, then prepare staging.

        Raises:
            InvariantError: a command was missed, or it promises blocks that no page backs.
            FatalRemapError: a rank could not remap; the scheduler has handed out the blocks already, so stop.
        """
        self._stagers[self._using].drain()
        if command is not None:
            self._remap(command)
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

    def _remap(self, command: RemapCommand) -> None:
        if command.seq != self._seq + 1:
            raise InvariantError(f"remap {command.seq} follows remap {self._seq}; one was missed")
        started = time.perf_counter()
        ballots = self._gather(self.remapper.prepare(command.seq, command.n_groups))
        verdict = vote(ballots, len(ballots))
        for shards in self.remapper.finish(verdict):
            self._copier.restore(shards)
        if not verdict.commit:
            raise FatalRemapError(f"remap {command.seq} to {command.n_groups} groups failed: {verdict.reason}")
        if verdict.capacity_blk < command.capacity_blk:
            raise InvariantError(f"pages back {verdict.capacity_blk} KV blocks; {command} promises more")
        self._seq = command.seq
        self._remaps += 1
        self._remap_s += time.perf_counter() - started
        logger.debug("%s: %d KV blocks", command, verdict.capacity_blk)

    # what is going on

    def stats(self) -> RankStats:
        """O(host copies), for the checksum."""
        return RankStats(
            n_groups=self.remapper.n_groups,
            capacity_blk=self.remapper.capacity_blk,
            remaps=self._remaps,
            remap_s=self._remap_s,
            staged_bytes=self._copier.staged_bytes,
            host_checksum=self._host.checksum(),
            steps=dict(self._steps),
        )

    def close(self) -> None:
        """Give all memory back. Weights and KV tensors are void from here on."""
        self._stagers[self._using].drain()
        self.remapper.close()
