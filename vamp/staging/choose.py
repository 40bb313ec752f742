"""Which staging mode a step should use: a pure function of what is offloaded and how many tokens run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["whole_region", "routed"]


@dataclass(frozen=True, slots=True)
class StagingCosts:
    """What copying costs on this host.

    Attributes:
        bulk_bytes_per_s: whole regions, one layer ahead.
        routed_bytes_per_s: single experts, on the critical path.
        hidden_s: what a layer computes whatever the number of tokens; a bulk copy hides behind it.
        hidden_s_per_tok: the same, per token.
    """

    bulk_bytes_per_s: float
    routed_bytes_per_s: float
    hidden_s: float = 0.0
    hidden_s_per_tok: float = 0.0


def experts_needed(n_offloaded: int, n_experts: int, top_k: int, n_tok: int) -> float:
    """Offloaded experts of one layer that a step selects, on average.

    ASSUMPTION: routing is uniform. Skewed routing needs fewer: routed staging costs at most this.
    """
    return n_offloaded * (1.0 - (1.0 - top_k / n_experts) ** n_tok)


def choose_mode(
    *, n_tok: int, n_offloaded: int, n_experts: int, top_k: int, expert_bytes: int, costs: StagingCosts
) -> Mode:
    """The mode with less copying time left on the critical path; whole_region on a tie.

    Args:
        n_tok: tokens in the step.
        n_offloaded: experts offloaded in the layer that gave up most.
        expert_bytes: one expert of one layer on this rank.
    """
    hidden_s = costs.hidden_s + costs.hidden_s_per_tok * n_tok
    whole_s = max(0.0, n_offloaded * expert_bytes / costs.bulk_bytes_per_s - hidden_s)
    needed = experts_needed(n_offloaded, n_experts, top_k, n_tok)
    return "routed" if needed * expert_bytes / costs.routed_bytes_per_s < whole_s else "whole_region"
