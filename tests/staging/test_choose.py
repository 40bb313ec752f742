"""The choice of a staging mode."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vamp.staging.choose import Mode, StagingCosts, choose_mode, experts_needed

H200 = StagingCosts(bulk_bytes_per_s=55e9, routed_bytes_per_s=51e9, hidden_s_per_tok=20e-3 / 47 / 64)


def mode(n_tok: int, costs: StagingCosts = H200) -> Mode:
    return choose_mode(n_tok=n_tok, n_offloaded=76, n_experts=512, top_k=10, expert_bytes=3 * 2**20, costs=costs)


def test_few_tokens_need_few_experts() -> None:
    assert mode(1) == "routed"
    assert mode(4096) == "whole_region"


def test_expected_experts_are_those_of_the_design() -> None:
    """ARCHITECTURE, section 6: 1.5 / 5.8 / 11.1 / 20.6 / 35.6 / 54.5 for 76 of 512, top 10."""
    seen = [round(experts_needed(76, 512, 10, n), 1) for n in (1, 4, 8, 16, 32, 64)]
    assert seen == [1.5, 5.8, 11.1, 20.6, 35.6, 54.5]


@given(st.integers(1, 20_000))
def test_more_tokens_never_turn_back_to_routed(n_tok: int) -> None:
    assert not (mode(n_tok) == "whole_region" and mode(n_tok + 1) == "routed")


def test_what_hides_completely_is_free() -> None:
    assert mode(1, StagingCosts(55e9, 51e9, hidden_s=1.0)) == "whole_region"
