"""Routed staging on a CUDA device: one small kernel after the router of every layer that may give up experts.

Launched inside and outside of CUDA graphs alike, whether anything is offloaded or not: the boundary is read on the
device. Per-expert scales of quantized weights are small and stay resident; only weights are staged.
"""

from __future__ import annotations

from typing import Any

import torch

from vamp.errors import GeometryError
from vamp.memory.remapper import Remapper
from vamp.staging.cuda.copier import CudaCopier
from vamp.staging.cuda.kernel import BLOCK_WORDS, IDS, PROGRAMS, WARPS, stage_selected

_FIELDS = 4
"""int32 fields per layer, which aligns every layer's to 16 bytes: [first staged, experts staged, launches, -]."""
ALL_TOK = 2**31 - 1
"""More tokens than any forward pass has."""


class CudaRouted:
    """A `Stager` on the stream that the experts run on."""

    def __init__(self, remapper: Remapper, copier: CudaCopier, device: int) -> None:
        experts = remapper.layout.plan.experts
        if len(experts.tensor_bytes) != 2:
            raise GeometryError(f"{len(experts.tensor_bytes)} expert tensors; on CUDA gate-and-up and down are served")
        self._remapper, self._experts = remapper, experts
        self.device = torch.device("cuda", device)
        nothing = torch.tensor([experts.n_shards, 0, 0, 0], dtype=torch.int32)
        self._state = nothing.repeat(experts.n_layers, 1).to(self.device)
        self._n_tok = torch.full((1,), ALL_TOK, dtype=torch.int32, device=self.device)
        self._arguments: dict[int, tuple[Any, ...]] = {}
        for layer in range(experts.resident_layers, experts.n_layers):
            if remapper.layout.staged_shards(layer):
                self._arguments[layer] = self._addresses(layer, copier)
        kept = remapper.layout.staged_shards(experts.n_layers - 1)
        self._constants: dict[str, Any] = {
            "KEPT_FROM": experts.n_shards - kept,
            "N_EXPERTS": experts.n_shards,
            "SLOTS": max(16, 1 << (kept - 1).bit_length()),
            "GATE_WORDS": experts.tensor_bytes[0] // 8,
            "DOWN_WORDS": experts.tensor_bytes[1] // 8,
            "IDS": IDS,
            "BLOCK": BLOCK_WORDS,
            "num_warps": WARPS,
        }

    def _addresses(self, layer: int, copier: CudaCopier) -> tuple[Any, ...]:
        first = copier.kept_from(layer)
        gate, down = (self._remapper.addresses.expert(layer, tensor, first).address for tensor in range(2))
        return self._state[layer], copier.source(layer, 0), gate, copier.source(layer, 1), down

    def follow_boundary(self) -> None:
        """To be called after every remap: kernels launched from here on stage what is offloaded now."""
        self.stage_from([self._remapper.offloaded(layer).first for layer in range(self._experts.n_layers)])

    def stage_nothing(self) -> None:
        """Until `follow_boundary`: for what breaks staging on purpose, to see that it is noticed."""
        self.stage_from([self._experts.n_shards] * self._experts.n_layers)

    def stage_from(self, first_staged: list[int]) -> None:
        """Set the first shard to stage, by MoE layer; E stages nothing. In stream order, without waiting."""
        self._state[:, 0].copy_(torch.tensor(first_staged, dtype=torch.int32).pin_memory(), non_blocking=True)

    def stage_tokens(self, n_tok: int) -> None:
        """From here on stage what the first `n_tok` rows of expert numbers chose. In stream order, without waiting."""
        self._n_tok.fill_(n_tok)

    def forget_counts(self) -> None:
        """`staged_shards` and `launches` count from here."""
        self._state[:, 1:].zero_()

    def staged_shards(self) -> list[int]:
        """Shards copied so far, by MoE layer. Waits for the device; counts modulo 2**32."""
        return self._counts(1)

    def launches(self) -> list[int]:
        """Launches while something was offloaded, likewise."""
        return self._counts(2)

    def _counts(self, field: int) -> list[int]:
        counts: list[int] = self._state[:, field].cpu().tolist()
        return [n % 2**32 for n in counts]

    def begin_step(self) -> None:
        pass

    def before_experts(self, layer: int, experts: Any) -> None:
        """Args: experts: int32 or int64 tensor of shape (tokens, top_k) on the device, contiguous."""
        arguments = self._arguments.get(layer)
        if arguments is not None:
            counts = experts.numel(), experts.shape[1], self._n_tok
            stage_selected[(PROGRAMS,)](experts, *counts, *arguments, **self._constants)

    def before_down(self, layer: int) -> None:
        """The down projection's weights are there already."""

    def after_experts(self, layer: int) -> None:
        pass

    def drain(self) -> None:
        pass
