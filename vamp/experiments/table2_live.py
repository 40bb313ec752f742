"""Table II on a live server: what a load that asks for everything made it reclaim, and what the plan allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from vamp.config import CostModel
from vamp.experiments.ensure import ensure
from vamp.experiments.parameters import Ratios
from vamp.experiments.recording import recorded_ones
from vamp.experiments.spec import RunSpec, make_spec
from vamp.live.platform import LivePlatform
from vamp.measure.records import RunResult
from vamp.memory.geometry import GIB, MIB

FREE_OFFLOADING = CostModel(c_reload_us=0.0, t_overhead_us=0.0)
"""Experts go whenever blocks run short, so that the pool reaches what the ratio allows."""


def spec(backend: str, pl: LivePlatform, ratio_pct: float) -> RunSpec:
    """Sessions whose contexts are more than the largest pool holds."""
    workload = {"kind": "inhouse", "concurrency": pl.fill_sessions}
    return make_spec(backend=backend, platform=pl.name, ratio_pct=ratio_pct, workload=workload, cost=FREE_OFFLOADING)


def expansion(backend: str, pl: LivePlatform, ratios: Ratios) -> pd.DataFrame:
    """One row per ratio: groups, reclaimed and total memory of a rank, the factor, and blocks, by plan and server."""
    specs = [spec(backend, pl, ratio) for ratio in ratios]
    if backend == "recorded":
        specs = recorded_ones(specs)
    return pd.DataFrame([_row(pl, s.ratio_pct, run) for s, run in zip(specs, ensure(specs), strict=True)])


def unit(pl: LivePlatform) -> str:
    """What memory is shown in: GiB of a GPU, MiB of a tiny model."""
    return "GiB" if pl.backend == "cuda" else "MiB"


def _row(pl: LivePlatform, ratio_pct: float, run: RunResult) -> dict[str, Any]:
    in_unit = _in_unit(pl)
    plan = pl.experts.max_groups(ratio_pct)
    live, live_blk = int(run.meta["n_groups_max"]), int(run.timeline["pool_blk"].max())
    return {
        "system": f"VAMP-{ratio_pct:g}" if ratio_pct else "vLLM",
        "ratio_pct": ratio_pct,
        "groups": live,
        "groups_plan": plan,
        "reclaimed": in_unit(live * pl.experts.group_bytes),
        "reclaimed_plan": in_unit(plan * pl.experts.group_bytes),
        "pool": in_unit(live_blk * pl.kv.block_bytes),
        "pool_plan": in_unit(pl.max_blk(ratio_pct) * pl.kv.block_bytes),
        "unit": unit(pl),
        "factor": live_blk / pl.base_blk,
        "pool_blk": live_blk,
        "pool_blk_plan": pl.max_blk(ratio_pct),
        "failed": int((run.requests["error"] != "").sum()),
    }


def _in_unit(pl: LivePlatform) -> Callable[[int], float]:
    divisor = GIB if unit(pl) == "GiB" else MIB
    return lambda nbytes: nbytes / divisor


def table(pl: LivePlatform, rows: pd.DataFrame) -> pd.DataFrame:
    """The server's own numbers beside the plan's."""
    columns = {
        f"reclaimed, {unit(pl)}": rows["reclaimed"].map("{:.2f}".format),
        "plan ": rows["reclaimed_plan"].map("{:.2f}".format),
        f"pool, {unit(pl)}": rows["pool"].map("{:.2f}".format),
        "plan  ": rows["pool_plan"].map("{:.2f}".format),
        "pool / baseline": rows["factor"].map("{:.2f}x".format),
        "blocks": rows["pool_blk"],
        "plan": rows["pool_blk_plan"],
        "failed requests": rows["failed"],
    }
    out = pd.DataFrame({"system": rows["system"], **columns})
    out.columns.name = pl.label
    return out


def parts(pl: LivePlatform, rows: pd.DataFrame) -> pd.DataFrame:
    """Columns bar, part and gib of `hbm_bars`, in `unit`."""
    experts, base = (_in_unit(pl)(nbytes) for nbytes in (pl.experts.weights_bytes, pl.base_blk * pl.kv.block_bytes))
    return pd.DataFrame(
        [
            (row["system"], part, size)
            for row in rows.to_dict("records")
            for part, size in (
                ("expert weights", experts - row["reclaimed"]),
                ("reclaimed for KV", row["reclaimed"]),
                ("KV-cache pool at start", base),
            )
        ],
        columns=["bar", "part", "gib"],
    )
