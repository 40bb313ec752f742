"""How long a model step takes: compute, tensor-parallel traffic, and weight staging overlapped with them.

The model is linear in what a step does, with one maximum: staging runs beside compute (section V-B), one layer ahead,
so only what does not fit behind compute is exposed. Two terms follow from what the hardware does and are 0 unless a
platform sets them: experts that a step touches are read from device memory, which saturates with the number of tokens;
and attention of prompt tokens grows with their context. Coefficients come from data/platforms or from `vamp calibrate`;
each says where it is from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vamp.config import StagingMode
from vamp.memory.geometry import ExpertGeometry


class StepLoad(NamedTuple):
    """What a step executes.

    Attributes:
        prefill_tok: prompt tokens computed.
        decode_seqs: requests that generate their next token.
        context_tok: tokens of context that those requests attend to, summed.
        attended_pairs: pairs of a computed prompt token and a token that it attends to.
    """

    prefill_tok: int
    decode_seqs: int
    context_tok: int
    attended_pairs: int = 0


class StepTime(NamedTuple):
    """Seconds. `total_s` = compute_s (TP traffic and waiting for launches included) + exposed_staging_s.

    Attributes:
        launch_s: of these, how long the host is busy launching the step.
    """

    total_s: float
    compute_s: float
    exposed_staging_s: float
    launch_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Attributes:
    step_ms: fixed part: launches, sampling, scheduling.
    prefill_us_per_tok, decode_ms_per_seq, context_ns_per_tok: compute.
    tp_bytes_per_tok: all-reduced bytes per token and rank over all layers (0 without tensor parallelism).
    tp_bus_gbps: their bandwidth, GB/s.
    tp_shares_host_bus: whether they travel on the same bus as weights from the host.
    h2d_gbps: host-to-device copy bandwidth, GB/s.
    top_k: experts per token, for routed staging.
    expert_read_ms: reading all experts once from device memory; a step pays for the share that it touches.
    attention_ps_per_pair: attention of prompt tokens, picoseconds for each of `StepLoad.attended_pairs`.
    routed_gbps: bandwidth of routed staging, GB/s; 0 takes h2d_gbps.
    graph_tok: steps with up to that many tokens are CUDA graphs, where staging is routed whatever mode is asked for
        (vamp.engine.worker_cuda); 0 where the mode always counts.
    launch_ms: host time of a step with more than graph_tok tokens, whose kernels are launched one by one. A step takes
        at least as long, and until it is launched the scheduler waits.
    """

    step_ms: float
    prefill_us_per_tok: float
    decode_ms_per_seq: float
    context_ns_per_tok: float
    tp_bytes_per_tok: int
    tp_bus_gbps: float
    tp_shares_host_bus: bool
    h2d_gbps: float
    experts: ExpertGeometry
    top_k: int
    expert_read_ms: float = 0.0
    attention_ps_per_pair: float = 0.0
    routed_gbps: float = 0.0
    graph_tok: int = 0
    launch_ms: float = 0.0

    def step(self, load: StepLoad, n_groups: int, mode: StagingMode) -> StepTime:
        """Time of a step with `n_groups` offloaded."""
        n_tok = load.prefill_tok + load.decode_seqs
        tp_s = n_tok * self.tp_bytes_per_tok / (self.tp_bus_gbps * 1e9)
        launch_s = self.launch_ms * 1e-3 if n_tok > self.graph_tok else 0.0
        compute_s = max(self._compute_s(load) + tp_s, launch_s)
        if n_groups == 0:
            return StepTime(compute_s, compute_s, 0.0, launch_s)
        whole_s = n_groups * self.experts.group_bytes / (self.h2d_gbps * 1e9)
        contended_s = tp_s if self.tp_shares_host_bus else 0.0
        exposed_s = self._exposed_whole_region_s(compute_s, whole_s + contended_s)
        if n_tok <= self.graph_tok:
            mode = "routed"
        if mode != "whole_region":
            # Routed staging waits for the router, so nothing of it hides behind compute (ARCHITECTURE section 6).
            slower = self.h2d_gbps / self.routed_gbps if self.routed_gbps else 1.0
            routed_s = whole_s * slower * self.routed_share(n_tok) + contended_s
            exposed_s = routed_s if mode == "routed" else min(exposed_s, routed_s)
        return StepTime(compute_s + exposed_s, compute_s, exposed_s, launch_s)

    def _compute_s(self, load: StepLoad) -> float:
        """Without tensor-parallel traffic."""
        n_tok = load.prefill_tok + load.decode_seqs
        return (
            self.step_ms * 1e-3
            + load.prefill_tok * self.prefill_us_per_tok * 1e-6
            + load.decode_seqs * self.decode_ms_per_seq * 1e-3
            + load.context_tok * self.context_ns_per_tok * 1e-9
            + load.attended_pairs * self.attention_ps_per_pair * 1e-12
            + self.routed_share(n_tok) * self.expert_read_ms * 1e-3
        )

    def _exposed_whole_region_s(self, compute_s: float, bus_s: float) -> float:
        """Double buffering, one layer ahead: layer i's copy runs while layer i-1 computes.

        The first `resident_layers` compute while the first copy is under way; after that each layer takes the longer of
        its compute and the next layer's copy.
        """
        layers, staged = self.experts.n_layers, self.experts.eligible_layers
        per_layer_s, per_copy_s = compute_s / layers, bus_s / staged
        return staged * max(0.0, per_copy_s - per_layer_s)

    def routed_share(self, n_tok: int) -> float:
        """Expected share of a layer's experts that `n_tok` tokens select, routing uniform (ASSUMPTION)."""
        return 1.0 - (1.0 - self.top_k / self.experts.n_shards) ** n_tok
