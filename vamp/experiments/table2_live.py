"""Table II on a live CPU server: what a load that asks for everything made it reclaim, and what the plan allows."""

from __future__ import annotations

from typing import Any

import pandas as pd

from vamp.config import CostModel
from vamp.experiments.ensure import ensure
from vamp.experiments.parameters import Ratios
from vamp.experiments.spec import RunSpec, make_spec
from vamp.live.platform import MODEL, LivePlatform, load_live_platform
from vamp.measure.records import RunResult
from vamp.memory.geometry import MIB

SESSIONS = 16
"""Alive at once: their contexts are more than the largest pool holds."""
FREE_OFFLOADING = CostModel(c_reload_us=0.0, t_overhead_us=0.0)
"""Experts go whenever blocks run short, so that the pool reaches what the ratio allows."""


def spec(platform: str, ratio_pct: float) -> RunSpec:
    workload = {"kind": "inhouse", "concurrency": SESSIONS}
    return make_spec(backend="cpu", platform=platform, ratio_pct=ratio_pct, workload=workload, cost=FREE_OFFLOADING)


def expansion(platform: str, ratios: Ratios) -> pd.DataFrame:
    """One row per ratio: groups, reclaimed and total MiB, the factor, and blocks, by plan and by the server."""
    runs = ensure([spec(platform, ratio) for ratio in ratios])
    pl = load_live_platform(platform)
    return pd.DataFrame([_row(pl, ratio, run) for ratio, run in zip(ratios, runs, strict=True)])


def _row(pl: LivePlatform, ratio_pct: float, run: RunResult) -> dict[str, Any]:
    plan = pl.experts.max_groups(ratio_pct)
    live, live_blk = int(run.meta["n_groups_max"]), int(run.timeline["pool_blk"].max())
    return {
        "system": f"VAMP-{ratio_pct:g}" if ratio_pct else "vLLM",
        "ratio_pct": ratio_pct,
        "groups": live,
        "groups_plan": plan,
        "reclaimed_mib": live * pl.experts.group_bytes / MIB,
        "reclaimed_mib_plan": plan * pl.experts.group_bytes / MIB,
        "pool_mib": live_blk * pl.kv.block_bytes / MIB,
        "pool_mib_plan": pl.max_blk(ratio_pct) * pl.kv.block_bytes / MIB,
        "factor": live_blk / pl.base_blk,
        "pool_blk": live_blk,
        "pool_blk_plan": pl.max_blk(ratio_pct),
        "failed": int((run.requests["error"] != "").sum()),
    }


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """The server's own numbers beside the plan's."""
    columns = {
        "reclaimed, MiB": rows["reclaimed_mib"].map("{:.2f}".format),
        "plan ": rows["reclaimed_mib_plan"].map("{:.2f}".format),
        "pool, MiB": rows["pool_mib"].map("{:.2f}".format),
        "plan  ": rows["pool_mib_plan"].map("{:.2f}".format),
        "pool / baseline": rows["factor"].map("{:.2f}x".format),
        "blocks": rows["pool_blk"],
        "plan": rows["pool_blk_plan"],
        "failed requests": rows["failed"],
    }
    out = pd.DataFrame({"system": rows["system"], **columns})
    out.columns.name = f"live CPU server, {MODEL}"
    return out


def parts(platform: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Columns bar, part and gib of `hbm_bars`, in MiB."""
    pl = load_live_platform(platform)
    experts_mib, base_mib = pl.experts.weights_bytes / MIB, pl.base_blk * pl.kv.block_bytes / MIB
    return pd.DataFrame(
        [
            (row["system"], part, mib)
            for row in rows.to_dict("records")
            for part, mib in (
                ("expert weights", experts_mib - row["reclaimed_mib"]),
                ("reclaimed for KV", row["reclaimed_mib"]),
                ("KV-cache pool at start", base_mib),
            )
        ],
        columns=["bar", "part", "gib"],
    )
