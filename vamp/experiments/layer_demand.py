"""Fig. 11: how many distinct experts one step needs in each layer, and what an expert cache would make of it.

No model runs here. A step with n tokens needs the union of their top-k experts. The sizes of the steps are those of a
run of the Fig. 9 sweep; which experts a router prefers is a declared assumption, beside uniform routing; what one H200
counted with random weights stands beside both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field
from scipy.optimize import brentq

from vamp.experiments import fig9
from vamp.experiments.parameters import OnePlatform, OneRunParameters
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.paths import data_dir
from vamp.report import results, theme
from vamp.report.figures import layer_union
from vamp.report.tables import number
from vamp.report.theme import SavedFigure
from vamp.report.verdicts import Measured
from vamp.sim.platforms import Platform, load_platform

NOTEBOOK = "16_fig11_layer_demand"
COVERS = ("fig11.*",)
PAPER_STEPS = 1012
SKEWED, UNIFORM = "skewed routing", "uniform routing"
RECORDED = "recorded/h200_tp2_rank_engine.json"
RECORDED_OFFLOADED = 76
"""Experts of a layer that the recorded routed steps counted in: the top 15 % of the indices."""

Floats = npt.NDArray[np.float64]


class Params(OneRunParameters):
    """Attributes:
    concurrency: sessions of the vLLM run of the sweep whose steps are taken.
    steps: how many of them are drawn.
    skew_least, skew_most: ASSUMPTION: popularity of a layer's experts is lognormal; its spread goes from one to the
        other over the layers, in an order drawn from the seed.
    """

    platform: OnePlatform = "h200_nvl_tp4"
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 32
    steps: Annotated[int, Field(ge=1, le=100_000)] = PAPER_STEPS
    skew_least: Annotated[float, Field(ge=0, le=4)] = 0.25
    skew_most: Annotated[float, Field(ge=0, le=4)] = 1.5

    @property
    def why_not(self) -> str:
        declared = ("concurrency", "steps", "skew_least", "skew_most")
        changed = [name for name in declared if getattr(self, name) != type(self).model_fields[name].default]
        return super().why_not or (f"other {', '.join(changed)} than the declared" if changed else "")


def spec(p: Params) -> RunSpec:
    """A run of the sweep, so that it is executed once."""
    return fig9.spec(p.backend, p.platform, 0.0, p.concurrency, p.seed, p.scale)


def inclusion(skew: float, experts: int, top_k: int, rng: np.random.Generator) -> Floats:
    """Chance of each expert to be among the top k of one token, shape (experts,); they sum to k.

    Popularities are lognormal with spread `skew`; odds are proportional to popularity (conditional Poisson sampling),
    so that no chance exceeds 1. Skew 0 is uniform routing.
    """
    weight = np.exp(skew * rng.standard_normal(experts))

    def excess(log_factor: float) -> float:
        odds = np.exp(log_factor) * weight
        return float((odds / (1 + odds)).sum()) - top_k

    odds = np.exp(brentq(excess, -60.0, 60.0)) * weight
    return np.asarray(odds / (1 + odds), dtype=np.float64)


def expected_union(chance: Floats, n_tok: int) -> float:
    """Expected number of distinct experts that `n_tok` tokens need, tokens routed independently."""
    return float((1.0 - (1.0 - chance) ** n_tok).sum())


def step_tokens(p: Params, run: RunResult) -> npt.NDArray[np.int64]:
    """Tokens in each step, shape (steps,): drawn from the run's sampled steps."""
    seen = run.timeline["step_tok"].to_numpy(dtype=np.int64)
    return np.random.default_rng(p.seed).choice(seen[seen > 0], p.steps)


def demand(p: Params, n_tok: npt.NDArray[np.int64]) -> pd.DataFrame:
    """One row per routing, layer and step: routing, layer, skew, n_tok, union (distinct experts needed)."""
    pl = load_platform(p.platform)
    layers, experts = pl.experts.n_layers, pl.experts.n_shards
    rng = np.random.default_rng(p.seed)
    skews = rng.permutation(np.linspace(p.skew_least, p.skew_most, layers))
    frames = []
    for routing, spreads in ((UNIFORM, np.zeros(layers)), (SKEWED, skews)):
        for layer, skew in enumerate(spreads):
            needed = 1.0 - (1.0 - inclusion(float(skew), experts, pl.top_k, rng)) ** n_tok[:, None]
            union = (rng.random(needed.shape) < needed).sum(axis=1)
            frames.append(
                pd.DataFrame({"layer": layer, "skew": skew, "n_tok": n_tok, "union": union, "routing": routing})
            )
    return pd.concat(frames, ignore_index=True)


def per_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per routing and layer: its spread, mean and largest union over the steps."""
    by = rows.groupby(["routing", "layer"], sort=False)
    return by.agg(skew=("skew", "first"), mean=("union", "mean"), largest=("union", "max")).reset_index()


def table(p: Params, layers: pd.DataFrame) -> pd.DataFrame:
    """Range over the layers of the mean union, and the largest; the paper's beside it."""
    experts = load_platform(p.platform).experts.n_shards
    rows = []
    for routing, of in layers.groupby("routing", sort=False):
        span = f"{of['mean'].min():.0f} to {of['mean'].max():.0f}"
        rows.append({"routing": routing, "mean per layer": span, "largest in one step": str(of["largest"].max())})
    rows.append({"routing": "paper, 4x H200", "mean per layer": "262 to 473", "largest in one step": "494"})
    return pd.DataFrame(rows).assign(of=experts)


def cache_table(p: Params, rows: pd.DataFrame, ratios: Sequence[float] = (15.0, 20.0, 50.0)) -> pd.DataFrame:
    """Share of layer executions that need more experts than would stay resident at a ratio: no cache policy serves
    those without waiting for a copy."""
    pl = load_platform(p.platform)
    out = []
    for ratio in ratios:
        kept = pl.experts.n_shards - int(ratio / 100 * pl.experts.n_shards)
        row: dict[str, object] = {"cached experts of a layer": kept, "offloaded, %": number(ratio)}
        for routing, of in rows.groupby("routing", sort=False):
            row[f"{routing}: executions that need more, %"] = f"{100 * (of['union'] > kept).mean():.1f}"
        out.append(row)
    return pd.DataFrame(out)


def recorded_table() -> pd.DataFrame:
    """What one H200 counted: distinct experts among the 76 offloaded ones per layer in decode steps, random weights,
    beside what uniform routing expects."""
    pl = load_platform("h200_tp2_rank")
    recorded = json.loads((data_dir() / RECORDED).read_text(encoding="utf-8"))["decode_routed"]
    share = RECORDED_OFFLOADED / pl.experts.n_shards
    return pd.DataFrame(
        [
            {
                "requests": r["n"],
                "recorded": f"{r['experts_per_layer']:.1f}",
                "uniform": f"{share * _uniform(pl, r['n']):.1f}",
                "of": RECORDED_OFFLOADED,
            }
            for r in recorded
        ]
    )


def _uniform(pl: Platform, n_tok: int) -> float:
    return expected_union(np.full(pl.experts.n_shards, pl.top_k / pl.experts.n_shards), n_tok)


def measured(p: Params, layers: pd.DataFrame) -> list[Measured]:
    """From the skewed routing, at the declared assumptions only."""
    if p.why_not:
        return []
    own = layers[layers["routing"] == SKEWED]
    note = "occupancy model, routing assumed"
    return [
        Measured("fig11.layer_mean_union", p.platform, (float(own["mean"].min()), float(own["mean"].max())), note=note),
        Measured("fig11.max_union", p.platform, int(own["largest"].max()), note=note),
    ]


def figure(p: Params, layers: pd.DataFrame) -> SavedFigure:
    pl = load_platform(p.platform)
    note = f"occupancy model, routing assumed; {p.steps:,} steps of vLLM's run at c = {p.concurrency}"
    where = theme.origin(p.backend, scale=p.scale, note=note)
    fig = layer_union(
        layers, pl.experts.n_shards, heading=f"Fig. 11: experts needed per layer, {pl.title}", where=where
    )
    return theme.save_figure(fig, layers, notebook=NOTEBOOK, name="layer_demand", backend=p.backend)


def save(p: Params, layers: pd.DataFrame) -> results.Results:
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, layers),
        summaries=layers,
        why_not=p.why_not or "the paper profiled a running model; no step was profiled here",
    )
