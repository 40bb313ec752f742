from __future__ import annotations

import inspect
import re
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import ConfigError
from vamp.workloads import assumptions as module
from vamp.workloads.assumptions import StandinAssumptions, assumptions, scaled

NAMES = [f.name for f in fields(StandinAssumptions)]


def test_every_value_is_documented_as_an_assumption() -> None:
    source = inspect.getsource(module)
    for name in NAMES:
        after = source.split(f"    {name}: ", 1)[1].split("\n", 1)[1]
        assert after.lstrip().startswith('"""ASSUMPTION: '), name
        assert name == "trace_seed" or re.search("Chosen|Fitted", after.split('"""')[1]), name


@pytest.mark.parametrize("name", NAMES)
def test_every_value_can_be_overridden(name: str) -> None:
    value = float(getattr(StandinAssumptions(), name)) + 1.0
    assert getattr(assumptions({name: value}), name) == value


def test_an_unknown_name_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown override tool_toks; valid names: turns_min, .*trace_seed"):
        assumptions({"tool_toks": 1.0})


@pytest.mark.parametrize(
    "bad",
    [{"turns_min": 15.5}, {"think_s": -1.0}, {"tool_sd": float("nan")}, {"first_tok": float("inf")}],
)
def test_a_value_out_of_range_is_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=rf"overrides\.{next(iter(bad))}: "):
        assumptions(bad)


@given(st.integers(1, 30), st.integers(100, 400), st.floats(0.05, 2.0))
def test_the_printed_counts_hold_for_any_shape(shortest: int, longest: int, sigma: float) -> None:
    counts = StandinAssumptions(turns_min=shortest, turns_max=longest, turns_sigma=sigma).turn_counts()
    assert len(counts) == 48
    assert counts.sum() == 2103
    assert (counts > 61).sum() >= 12 > (counts > 62).sum()
    assert counts.min() >= shortest
    assert counts.max() <= longest
    assert np.diff(counts).min() >= -1  # ascending but for rounding: no session takes all that was lost


@pytest.mark.parametrize("bounds", [{"turns_min": 60}, {"turns_max": 62}, {"turns_min": 200}])
def test_bounds_that_contradict_the_counts_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="cannot give 2103 turns"):
        StandinAssumptions(**bounds).turn_counts()


def test_the_declared_mean_prompt_is_that_of_a_trace_without_luck() -> None:
    """Recomputed turn by turn, with every draw at its mean."""
    assumed = StandinAssumptions()
    lengths = []
    for n in assumed.turn_counts():
        prompt = assumed.first_tok
        for turn in range(n):
            lengths.append(prompt)
            prompt += assumed.output_tok + float(assumed.tool_mean_tok(np.array(turn)))
    assert assumed.mean_prompt_tok == pytest.approx(np.mean(lengths))


def test_longer_tool_results_declare_a_longer_prompt() -> None:
    assert StandinAssumptions(tool_tok=555.0).mean_prompt_tok > StandinAssumptions().mean_prompt_tok + 1000


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=30), st.floats(0.2, 0.8))
def test_scaled_meets_the_total_within_the_bounds(draws: list[float], part: float) -> None:
    weights = np.ones(len(draws))
    total = len(draws) * (1.0 + 9.0 * part)
    out = scaled("x", np.array(draws), 1.0, 10.0, weights, total)
    assert out.sum() == pytest.approx(total)
    assert out.min() >= 1.0
    assert out.max() <= 10.0


def test_scaled_refuses_what_the_bounds_forbid() -> None:
    with pytest.raises(ConfigError, match=r"x: a total of 50 is needed, the bounds allow 2 to 20"):
        scaled("x", np.array([1.0, 2.0]), 1.0, 10.0, np.ones(2), 50.0)
    assert scaled("x", np.zeros(2), 0.0, 1.0, np.ones(2), 0.0).tolist() == [0.0, 0.0]
