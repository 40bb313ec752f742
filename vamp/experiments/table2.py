"""Table II: how far the KV pool of one H100 grows at a given offloading ratio."""

from __future__ import annotations

import pandas as pd

from vamp.experiments import table2_live
from vamp.experiments.parameters import OnePlatform, Parameters, Ratios
from vamp.live.platform import LivePlatform
from vamp.memory.geometry import GIB
from vamp.report import results, theme
from vamp.report.figures import hbm_bars
from vamp.report.theme import SavedFigure
from vamp.report.values import load_values
from vamp.report.verdicts import Measured
from vamp.sim.platforms import Platform, load_platform

NOTEBOOK = "02_table2_kv_expansion"
COVERS = ("table2.*", "setup.h100_expansion_*", "headline.kv_pool_expansion_max")


class Params(Parameters):
    backends = ("sim", "cpu", "cuda", "recorded")

    platform: OnePlatform = "h100_pcie_tp2"
    ratios: Ratios = (0.0, 15.0, 20.0)


def expansion(p: Params) -> pd.DataFrame:
    """One row per ratio: groups, reclaimed and total GiB per GPU, the factor, blocks; of servers, see `table2_live`."""
    if p.live is not None:
        return table2_live.expansion(p.backend, p.live, p.ratios)
    pl = load_platform(p.platform)
    return pd.DataFrame([_row(pl, ratio) for ratio in p.ratios])


def _row(pl: Platform, ratio_pct: float) -> dict[str, object]:
    n_groups = pl.experts.max_groups(ratio_pct)
    reclaimed = n_groups * pl.experts.group_bytes
    blocks = pl.kv.capacity_blk(pl.base_blk, reclaimed)
    return {
        "system": f"VAMP-{ratio_pct:g}" if ratio_pct else "vLLM",
        "ratio_pct": ratio_pct,
        "groups": n_groups,
        "reclaimed_gib": reclaimed / GIB,
        "pool_gib": pl.kv_pool_gib + reclaimed / GIB,
        "factor": 1 + reclaimed / GIB / pl.kv_pool_gib,
        "pool_blk": blocks,
        "pool_tok_full_attention": blocks * pl.kv.block_tok,
    }


def table(p: Params, rows: pd.DataFrame) -> pd.DataFrame:
    """Table II beside the paper's, or, of a live server, beside the plan."""
    if p.live is not None:
        return table2_live.table(p.live, rows)
    paper = load_values()
    out = []
    for row in rows.to_dict("records"):
        key = f"table2.{_key(str(row['system']))}"
        printed = [paper[f"{key}.{c}"].value if f"{key}.{c}" in paper else None for c in _COLUMNS]
        reclaimed, pool, factor = ("" if x is None else f"{x:g}" for x in printed)
        out.append(
            {
                "system": row["system"],
                "reclaimed, GiB": f"{row['reclaimed_gib']:.2f}",
                "paper ": reclaimed,
                "pool, GiB": f"{row['pool_gib']:.2f}",
                "paper  ": pool,
                "pool / baseline": f"{row['factor']:.2f}x",
                "paper": factor,
                "blocks": row["pool_blk"],
            }
        )
    return pd.DataFrame(out)


_COLUMNS = ("reclaimed", "total_kv_pool", "ratio")


def _key(system: str) -> str:
    return system.lower().replace("-", "")


def measured(rows: pd.DataFrame, platform: str) -> list[Measured]:
    """Closed-form values of the VAMP rows; vLLM's own pool is an input, not a result."""
    out = []
    by_system = {str(row["system"]): row for row in rows.to_dict("records")}
    for system in ("VAMP-15", "VAMP-20"):
        if system not in by_system:
            continue
        row, key = by_system[system], _key(system)
        out += [
            Measured(f"table2.{key}.reclaimed", platform, row["reclaimed_gib"]),
            Measured(f"table2.{key}.total_kv_pool", platform, row["pool_gib"]),
            Measured(f"table2.{key}.ratio", platform, row["factor"]),
            Measured(f"setup.h100_expansion_{key}", platform, row["pool_gib"]),
        ]
        if system == "VAMP-20":
            out.append(Measured("headline.kv_pool_expansion_max", platform, row["factor"]))
    return out


def figure(p: Params, rows: pd.DataFrame) -> SavedFigure:
    if p.live is not None:
        return _live_figure(p, p.live, rows)
    pl = load_platform(p.platform)
    experts_gib = pl.experts.weights_bytes / GIB
    rest_gib = pl.hbm_gib - experts_gib - pl.kv_pool_gib
    parts = pd.DataFrame(
        [
            (row["system"], part, gib)
            for row in rows.to_dict("records")
            for part, gib in (
                ("expert weights", experts_gib - row["reclaimed_gib"]),
                ("reclaimed for KV", row["reclaimed_gib"]),
                ("KV-cache pool at start", pl.kv_pool_gib),
                ("other weights, activations, reserve", rest_gib),
            )
        ],
        columns=["bar", "part", "gib"],
    )
    heading = f"Table II: memory of one GPU, {pl.title}"
    fig = hbm_bars(parts, heading=heading, where="closed form: the most that a ratio allows")
    return theme.save_figure(fig, parts, notebook=NOTEBOOK, name="expansion", backend=p.backend)


def _live_figure(p: Params, live: LivePlatform, rows: pd.DataFrame) -> SavedFigure:
    parts = table2_live.parts(live, rows)
    heading = f"Table II's arithmetic in memory: {live.title}"
    fig = hbm_bars(parts, heading=heading, where=theme.origin(p.backend, note=p.note), unit=table2_live.unit(live))
    return theme.save_figure(fig, parts, notebook=NOTEBOOK, name="expansion", backend=p.backend)


def save(p: Params, rows: pd.DataFrame) -> results.Results:
    comparable = p.platform == "h100_pcie_tp2" and not p.uncompared
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(rows, p.platform) if comparable else [],
        summaries=rows,
        why_not=p.uncompared
        or ("an input here, or not asked for" if comparable else f"{p.platform} is not Table II's platform"),
    )
