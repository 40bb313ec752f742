"""Table I and section V-A: sizes that follow from the model, the tensor-parallel degree and the VMM page."""

from __future__ import annotations

import pandas as pd

from vamp.config import CostModel
from vamp.experiments.parameters import PAPER_PLATFORMS, Parameters, Platforms, platforms_of
from vamp.memory.geometry import GIB, MIB
from vamp.report import results, theme
from vamp.report.figures import hbm_bars
from vamp.report.theme import SavedFigure
from vamp.report.verdicts import Measured
from vamp.sim.platforms import Platform, load_platform

NOTEBOOK = "01_table1_platforms"
COVERS = (
    "table1.*",
    "geom.*",
    "motivation.qwen.*",
    "motivation.h100_hbm",
    "setup.layers",
    "setup.*experts",
    "coef.*",
)
_KEYS = dict(zip(PAPER_PLATFORMS, (("h100", "tp2"), ("h200", "tp4")), strict=True))


class Params(Parameters):
    platform: Platforms = "both"


def load(p: Params) -> list[Platform]:
    return [load_platform(name) for name in platforms_of(p.platform)]


def table(platforms: list[Platform]) -> pd.DataFrame:
    """Table I with the closed-form rows computed and the set-up rows as declared."""
    return pd.DataFrame({pl.title: _column(pl) for pl in platforms})


def _column(pl: Platform) -> dict[str, str]:
    experts, kv = pl.experts, pl.kv
    return {
        "GPUs (set-up)": str(pl.gpus),
        "HBM per GPU, GiB (set-up)": f"{pl.hbm_gib:g}",
        "max. batched requests (set-up)": str(pl.max_num_seqs),
        "KV-cache pool per GPU, GiB (input)": f"{pl.kv_pool_gib:.2f}",
        "expert weights per GPU, GiB": f"{experts.weights_bytes / GIB:.2f}",
        "expert shard, MiB": f"{experts.shard_bytes / MIB:g}",
        "expert shards per group": str(experts.shards_per_group),
        "expert group, MiB": f"{experts.group_bytes / MIB:g}",
        "VMM pages per group": str(experts.pages_per_group),
        "KV block, tokens": str(kv.block_tok),
        "KV page of one block in one tensor, B": f"{kv.page_bytes:,}",
        "blocks in the pool": str(pl.base_blk),
    }


def measured(platforms: list[Platform]) -> list[Measured]:
    """Closed-form values. Quantities that both platforms share are taken from the first."""
    out = [
        Measured("coef.c_eff", platforms[0].name, CostModel().c_eff_us(platforms[0].experts.n_shards)),
        Measured("coef.C_e_cap_per_step", platforms[0].name, c_e_cap_ms(platforms[0])),
        Measured("geom.pages_per_group", platforms[0].name, platforms[0].experts.pages_per_group),
        Measured("geom.group_size", platforms[0].name, platforms[0].experts.group_bytes / MIB),
    ]
    for pl in platforms:
        if pl.name not in _KEYS:
            continue
        gpu, tp = _KEYS[pl.name]
        weights_gib = pl.experts.weights_bytes / GIB
        out += [
            Measured(f"table1.{gpu}.expert_weights_per_gpu", pl.name, weights_gib),
            Measured(f"table1.{gpu}.shards_per_group", pl.name, pl.experts.shards_per_group),
            Measured(f"geom.{tp}.shards_per_group", pl.name, pl.experts.shards_per_group),
            Measured(f"geom.{tp}.shard_size", pl.name, pl.experts.shard_bytes / MIB),
        ]
        if gpu == "h100":
            out.append(Measured("motivation.qwen.expert_weights_per_gpu", pl.name, weights_gib))
    return out


def c_e_cap_ms(pl: Platform) -> float:
    """Largest per-step C_e: E * c_eff (Eq. 3)."""
    return pl.experts.n_shards * CostModel().c_eff_us(pl.experts.n_shards) / 1e3


def hbm_parts(platforms: list[Platform]) -> pd.DataFrame:
    """Per platform: expert weights, the pool at start, and what is left of the GPU."""
    rows = []
    for pl in platforms:
        experts_gib = pl.experts.weights_bytes / GIB
        rows += [
            (pl.title, "expert weights", experts_gib),
            (pl.title, "KV-cache pool at start", pl.kv_pool_gib),
            (pl.title, "other weights, activations, reserve", pl.hbm_gib - experts_gib - pl.kv_pool_gib),
        ]
    return pd.DataFrame(rows, columns=["bar", "part", "gib"])


def figure(p: Params, platforms: list[Platform]) -> SavedFigure:
    parts = hbm_parts(platforms)
    fig = hbm_bars(parts, heading="Table I: memory of one GPU", where="closed form; the pool is an input")
    return theme.save_figure(fig, parts, notebook=NOTEBOOK, name="hbm", backend=p.backend)


def save(p: Params, platforms: list[Platform]) -> results.Results:
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(platforms),
        why_not="an input here; a live engine reads it off at its start",
    )
