"""Section VII-A: does a layer's copy from the host hide behind the computation before it? By ratio and batch.

The platform's step-time model says what a layer computes and what its copy takes; one H200's recorded steps stand
beside the model of that GPU.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from vamp.experiments.parameters import Concurrencies, Parameters, Platforms, Ratios, platforms_of
from vamp.paths import data_dir
from vamp.report import results, theme
from vamp.report.figures import copy_hiding
from vamp.report.theme import SavedFigure
from vamp.sim.platforms import Platform, load_platform
from vamp.sim.step_time import StepLoad

NOTEBOOK = "17_overlap"
COVERS = ("interconnect.*",)
RECORDED = "recorded/h200_tp2_rank_engine.json"
RECORDED_PLATFORM = "h200_tp2_rank"
_DECODE_MOST = 64  # steps with more tokens hold a prompt chunk


class Params(Parameters):
    """`tokens`: step sizes; up to 64 they are decoding requests, above that one prompt chunk. `context_tok`: what each
    decoding request attends to."""

    platform: Platforms = "both"
    ratios: Ratios = (10.0, 15.0, 20.0, 25.0)
    tokens: Concurrencies = (1, 8, 16, 32, 64, 256, 1024, 4096)
    context_tok: int = 16_000


def load_of(n_tok: int, context_tok: int) -> StepLoad:
    """That many requests decoding, or one prompt chunk of so many tokens."""
    if n_tok <= _DECODE_MOST:
        return StepLoad(0, n_tok, n_tok * context_tok)
    return StepLoad(n_tok, 0, context_tok)


def rows(p: Params) -> pd.DataFrame:
    """One row per platform, ratio and step size; times per layer in ms, those of a step in ms too."""
    found = []
    for name in platforms_of(p.platform):
        pl = load_platform(name)
        for ratio in p.ratios:
            for n_tok in p.tokens:
                load = load_of(n_tok, p.context_tok)
                step = "decoding" if load.decode_seqs else "prompt chunk"
                row = {"title": pl.title, "step": step, "ratio_pct": ratio, "n_tok": n_tok}
                found.append(row | _step(pl, load, ratio))
    return pd.DataFrame(found)


def _step(pl: Platform, load: StepLoad, ratio_pct: float) -> dict[str, float]:
    model = pl.step_model()
    groups = pl.experts.max_groups(ratio_pct)
    time = model.step(load, groups, "whole_region")
    bus_s = groups * pl.experts.group_bytes / (model.h2d_gbps * 1e9)
    return {
        "compute_ms": 1e3 * time.compute_s / pl.experts.n_layers,
        "copy_ms": 1e3 * bus_s / pl.experts.eligible_layers,
        "step_ms": 1e3 * time.total_s,
        "exposed_ms": 1e3 * time.exposed_staging_s,
        "hidden_pct": 100.0 * max(0.0, 1 - time.exposed_staging_s / bus_s) if bus_s else 100.0,
    }


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Share of the copy that hides, percent: a row per platform and ratio, a column per step size."""
    wide = rows.pivot(index=["title", "ratio_pct"], columns="n_tok", values="hidden_pct")
    return wide.map("{:.0f}".format).rename_axis(columns="hidden, %; tokens in the step")


def recorded_table() -> pd.DataFrame:
    """Steps of one H200 (one TP=2 rank's shape, random weights) beside the step-time model of that GPU, ms."""
    raw = json.loads((data_dir() / RECORDED).read_text(encoding="utf-8"))
    found = [(_decode_load(r["n"]), 0.0, "routed", "decode, plain", r) for r in raw["decode_plain"]]
    found += [(_decode_load(r["n"]), 15.0, "routed", "decode, routed 15 %", r) for r in raw["decode_routed"]]
    found += [(_one_step(r), 0.0, "routed", "prefill, plain", r) for r in raw["prefill_plain"][:1]]
    whole, routed = raw["prefill_whole_region"], raw["prefill_routed"]
    found += [
        (_one_step(run["result"][0]), run["ratio_pct"], mode, f"prefill, {text} 15 %", run["result"][0])
        for run, mode, text in ((whole, "whole_region", "whole region"), (routed, "routed", "routed"))
    ]
    return pd.DataFrame([_recorded_row(*one) for one in found])


def _decode_load(n: int) -> StepLoad:
    return StepLoad(0, n, 0)


def _one_step(recorded: dict[str, Any]) -> StepLoad:
    return StepLoad(int(recorded["n_tok"]), 0, 0)


def _recorded_row(load: StepLoad, ratio_pct: float, mode: Any, what: str, recorded: dict[str, Any]) -> dict[str, Any]:
    pl = load_platform(RECORDED_PLATFORM)
    model_ms = 1e3 * pl.step_model().step(load, pl.experts.max_groups(ratio_pct), mode).total_s
    own_ms = float(recorded["median_ms"])
    return {
        "step": what,
        "tokens": load.prefill_tok + load.decode_seqs,
        "recorded, ms": f"{own_ms:.1f}",
        "model, ms": f"{model_ms:.1f}",
        "model / recorded": f"{model_ms / own_ms:.2f}",
    }


def figure(p: Params, rows: pd.DataFrame) -> SavedFigure:
    where = theme.origin(p.backend, note=f"step-time model; decoding requests attend to {p.context_tok:,} tokens each")
    fig = copy_hiding(rows, heading="VII-A: a layer's computation and the next layer's copy", where=where)
    return theme.save_figure(fig, rows, notebook=NOTEBOOK, name="overlap", backend=p.backend)


def save(p: Params, rows: pd.DataFrame) -> results.Results:
    """The paper prints no number of section VII-A: there is nothing to judge."""
    return p.save(NOTEBOOK, covers=COVERS, summaries=rows)
