from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.experiments import fig9, layer_demand
from vamp.measure.records import RunResult

P = layer_demand.Params.check(steps=40)
DEFAULT = layer_demand.Params.check()


def made() -> RunResult:
    one = run(layer_demand.spec(P))
    return RunResult(one.requests, one.timeline.assign(step_tok=[0, *range(1, 21)]))


def rows(p: layer_demand.Params = P) -> pd.DataFrame:
    return layer_demand.demand(p, layer_demand.step_tokens(p, made()))


@given(skew=st.floats(0, 4), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_chances_are_chances_and_sum_to_k(skew: float, seed: int) -> None:
    chance = layer_demand.inclusion(skew, 512, 10, np.random.default_rng(seed))
    assert chance.sum() == pytest.approx(10, abs=1e-6)
    assert (chance > 0).all() and (chance <= 1).all()


def test_no_skew_is_uniform_routing() -> None:
    chance = layer_demand.inclusion(0.0, 512, 10, np.random.default_rng(0))
    assert np.ptp(chance) < 1e-12
    assert layer_demand.expected_union(chance, 1) == pytest.approx(10)
    assert layer_demand.expected_union(chance, 64) == pytest.approx(512 * (1 - (1 - 10 / 512) ** 64))


def test_the_occupancy_formula_agrees_with_routing_token_by_token() -> None:
    """Top k of popularity plus Gumbel noise, a router drawn independently of the formula."""
    rng = np.random.default_rng(0)
    experts, k, n_tok = 64, 4, 12
    unions = []
    for _ in range(2000):
        chosen = np.argsort(rng.gumbel(size=(n_tok, experts)), axis=1)[:, -k:]
        unions.append(len(np.unique(chosen)))
    chance = layer_demand.inclusion(0.0, experts, k, rng)
    assert np.mean(unions) == pytest.approx(layer_demand.expected_union(chance, n_tok), rel=0.01)


@given(n_tok=st.integers(1, 200))
@settings(deadline=None)
def test_skew_lowers_the_union_and_tokens_raise_it(n_tok: int) -> None:
    rng = np.random.default_rng(1)
    even, uneven = (layer_demand.inclusion(s, 512, 10, rng) for s in (0.0, 1.5))
    assert layer_demand.expected_union(uneven, n_tok) <= layer_demand.expected_union(even, n_tok) + 1e-6
    assert layer_demand.expected_union(even, n_tok) < layer_demand.expected_union(even, n_tok + 1)


def test_step_sizes_are_those_of_the_run() -> None:
    assert set(layer_demand.step_tokens(P, made())) <= set(range(1, 21))
    assert len(layer_demand.step_tokens(P, made())) == 40
    assert layer_demand.spec(DEFAULT) in fig9.specs(fig9.Params.check())


def test_every_layer_and_step_has_a_union_between_k_and_all() -> None:
    found = rows()
    assert len(found) == 2 * 48 * 40
    one = found[found["n_tok"] == 1]
    assert one.empty or one["union"].mean() == pytest.approx(10, rel=0.2)
    assert (found["union"] <= np.minimum(512, 40 * found["n_tok"])).all()
    layers = layer_demand.per_layer(found)
    assert (layers["largest"] >= layers["mean"]).all() and len(layers) == 96


@pytest.mark.usefixtures("checkout")
def test_results_tables_and_figure() -> None:
    p = DEFAULT
    found = layer_demand.demand(p, np.full(p.steps, 64))
    layers = layer_demand.per_layer(found)
    saved = layer_demand.save(p, layers)
    assert {m.id for m in layer_demand.measured(p, layers)} == {"fig11.layer_mean_union", "fig11.max_union"}
    assert saved.verdicts["fig11.max_union"] == "trend" and saved.verdicts["fig11.steps"] == "cited"
    assert list(layer_demand.table(p, layers)["routing"])[-1].startswith("paper")
    cached = layer_demand.cache_table(p, found)
    assert list(cached["cached experts of a layer"]) == [436, 410, 256]
    assert len(pd.read_csv(layer_demand.figure(p, layers).csv)) == 96
    assert list(layer_demand.recorded_table()["requests"]) == [1, 8, 32, 64]


def test_small_steps_are_a_miss() -> None:
    """Negative control: one token a step needs ten experts, not hundreds."""
    layers = layer_demand.per_layer(layer_demand.demand(DEFAULT, np.full(DEFAULT.steps, 1)))
    own = layer_demand.measured(DEFAULT, layers)
    judged = {r["id"]: r["verdict"] for r in layer_demand.results.judged_rows(layer_demand.COVERS, own, "sim")}
    assert judged["fig11.layer_mean_union"] == judged["fig11.max_union"] == "miss"


@pytest.mark.parametrize("given", [{"skew_most": 2.0}, {"steps": 10}, {"concurrency": 16}, {"scale": 0.5}])
def test_other_assumptions_than_the_declared_measure_nothing(given: dict[str, object]) -> None:
    p = layer_demand.Params.check(**given)
    assert p.why_not and layer_demand.measured(p, pd.DataFrame()) == []
    assert layer_demand.Params.check(seed=3).why_not == ""
