"""The step-time model: what it says at its corners, and that staging only ever adds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import ConfigError
from vamp.sim.platforms import load_platform, platform_names, tp_bytes_per_tok
from vamp.sim.step_time import StepLoad

H100 = load_platform("h100_pcie_tp2").step_model()
RANK = load_platform("h200_tp2_rank").step_model()
loads = st.builds(StepLoad, st.integers(0, 16384), st.integers(0, 128), st.integers(0, 10**6))
LIMIT = H100.experts.max_groups(50)


@given(loads, st.integers(0, LIMIT))
def test_the_total_is_compute_plus_what_is_exposed(load: StepLoad, n_groups: int) -> None:
    for mode in ("whole_region", "routed", "auto"):
        t = H100.step(load, n_groups, mode)
        assert t.total_s == pytest.approx(t.compute_s + t.exposed_staging_s)
        assert t.exposed_staging_s >= 0


@given(loads, st.integers(0, LIMIT - 1))
def test_more_offloaded_is_never_faster(load: StepLoad, n_groups: int) -> None:
    for mode in ("whole_region", "routed", "auto"):
        assert H100.step(load, n_groups, mode).total_s <= H100.step(load, n_groups + 1, mode).total_s + 1e-12


def test_nothing_offloaded_costs_nothing() -> None:
    assert H100.step(StepLoad(100, 3, 1000), 0, "whole_region").exposed_staging_s == 0


def test_a_decode_step_waits_for_the_bus_and_a_large_prefill_does_not() -> None:
    groups = H100.experts.max_groups(15)
    bus_s = groups * 6 * 2**20 / (H100.h2d_gbps * 1e9)
    decode = H100.step(StepLoad(0, 8, 200_000), groups, "whole_region")
    assert decode.total_s == pytest.approx(bus_s, rel=0.05)
    free = replace(H100, tp_shares_host_bus=False)
    assert free.step(StepLoad(8192, 8, 200_000), groups, "whole_region").exposed_staging_s == 0


def test_traffic_on_the_same_bus_exposes_more() -> None:
    groups, load = H100.experts.max_groups(15), StepLoad(2048, 8, 0)
    shared = H100.step(load, groups, "whole_region")
    apart = replace(H100, tp_shares_host_bus=False).step(load, groups, "whole_region")
    assert shared.exposed_staging_s > apart.exposed_staging_s


def test_auto_takes_the_cheaper_mode() -> None:
    groups = H100.experts.max_groups(15)
    for load in (StepLoad(0, 1, 0), StepLoad(8192, 0, 0)):
        times = {m: H100.step(load, groups, m).total_s for m in ("whole_region", "routed", "auto")}
        assert times["auto"] == min(times["whole_region"], times["routed"])
    assert (
        H100.step(StepLoad(0, 1, 0), groups, "auto").total_s
        < H100.step(StepLoad(0, 1, 0), groups, "whole_region").total_s
    )


def test_routed_share_matches_the_measured_need() -> None:
    """76 offloaded experts, uniform routing: 1.5 / 11.1 / 54.5 of them are needed at n = 1 / 8 / 64."""
    for n_tok, needed in ((1, 1.5), (8, 11.1), (64, 54.5)):
        assert 76 * H100.routed_share(n_tok) == pytest.approx(needed, rel=0.03)


def test_tp_bytes() -> None:
    assert tp_bytes_per_tok(1, 48, 2048) == 0
    assert tp_bytes_per_tok(2, 48, 2048) == 2 * 48 * 4096


def test_the_rank_profile_reproduces_the_measurements_it_was_made_from() -> None:
    """One H200, one rank's shape: decode steps of n requests, and 16,384 tokens in steps of 8,160, 8,160 and 64."""
    model = RANK
    for n, ms in ((1, 4.71), (4, 5.4), (8, 6.74), (16, 9.1), (32, 13.55), (64, 18.31)):
        assert 1e3 * model.step(StepLoad(0, n, 0), 0, "whole_region").total_s == pytest.approx(ms, rel=0.06)
    steps = [model.step(StepLoad(n_tok, 0, 0), 0, "whole_region").total_s for n_tok in (8160, 8160, 64)]
    assert sum(steps) == pytest.approx(0.25, rel=0.05)


def test_the_rank_profile_stages_as_measured() -> None:
    """76 experts of each layer: decode steps routed, 8,160 tokens by whole regions (copies take 206 ms)."""
    groups = RANK.experts.max_groups(15)
    for n, ms in ((1, 8.89), (8, 37.9), (32, 116.4), (64, 178.4)):
        assert 1e3 * RANK.step(StepLoad(0, n, 0), groups, "auto").total_s == pytest.approx(ms, rel=0.06)
    prefill = RANK.step(StepLoad(8160, 0, 0), groups, "whole_region")
    assert 1e3 * prefill.total_s == pytest.approx(217.7, rel=0.06)


def test_a_graph_stages_as_routed_whatever_is_asked_for() -> None:
    groups, load = RANK.experts.max_groups(15), StepLoad(0, 8, 0)
    assert RANK.step(load, groups, "whole_region") == RANK.step(load, groups, "routed")
    no_graphs = replace(RANK, graph_tok=0, launch_ms=0.0)
    assert no_graphs.step(load, groups, "whole_region") != no_graphs.step(load, groups, "routed")


def test_a_step_outside_graphs_takes_its_launches_at_least() -> None:
    inside, outside = (RANK.step(StepLoad(n_tok, 0, 0), 0, "auto") for n_tok in (128, 129))
    assert inside.launch_s == 0 and inside.total_s < 0.03
    assert outside.launch_s == outside.total_s == pytest.approx(0.116)
    assert RANK.step(StepLoad(16384, 0, 0), 0, "auto").total_s > outside.launch_s


def test_prompt_tokens_with_a_long_context_take_longer() -> None:
    assert RANK.step(StepLoad(8000, 0, 0, 8000 * 60_000), 0, "auto").total_s > (
        RANK.step(StepLoad(8000, 0, 0, 8000 * 4_000), 0, "auto").total_s + 0.05
    )


def test_the_papers_platforms_have_none_of_the_new_terms() -> None:
    new = ("expert_read_ms", "attention_ps_per_pair", "routed_gbps", "graph_tok", "launch_ms", "remap_ms")
    for name in ("h100_pcie_tp2", "h200_nvl_tp4"):
        coefficients = load_platform(name).step_time.model_dump()
        assert [coefficients[n] for n in new] == [0] * len(new)


def test_unknown_platform_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="h100_pcie_tp2"):
        load_platform("h100")
    assert {"h100_pcie_tp2", "h200_nvl_tp4", "h200_tp2_rank"} <= set(platform_names())


def test_unknown_coefficient_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no coefficient stepms.*step_ms"):
        load_platform("h100_pcie_tp2").step_model({"stepms": 1.2})


def test_every_coefficient_says_where_it_is_from() -> None:
    for name in platform_names():
        p = load_platform(name)
        known = set(p.step_time.model_dump()) | {"growth_tok", "output_tok"}
        used = known - {n for n, field in type(p.step_time).model_fields.items() if not field.is_required()}
        used |= {n for n, value in p.step_time.model_dump().items() if value}
        assert used <= set(p.provenance) <= known, name
