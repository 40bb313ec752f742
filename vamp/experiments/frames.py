"""Runs as tidy rows: one per run, then one per group of runs that differ in the seed only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.measure.stats import estimate
from vamp.measure.summary import summarise

METRICS = (
    "requests_per_s",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "queue_mean_s",
    "preemptions_per_1k",
    "n_preemptions",
    "hit_rate_pct",
    "hit_rate_per_request_pct",
    "tpot_ms",
    "output_tokens_per_s",
    "boundary_ratio_pct_mean",
)
GROUP = ("platform", "system", "concurrency")


def identity(spec: RunSpec) -> dict[str, Any]:
    """What tells runs of one notebook apart. `concurrency` is 0 for a workload that has none."""
    return {
        "platform": spec.platform,
        "system": spec.system,
        "concurrency": spec.workload.concurrency or 0,
        "seed": spec.seed,
    }


def run_rows(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per run: its identity and its summary."""
    return pd.DataFrame([identity(spec) | asdict(summarise(run, spec)) for spec, run in zip(specs, runs, strict=True)])


def group_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per platform, system and concurrency: mean over runs, <metric>_sd, and n."""
    out = []
    for key, group in rows.groupby(list(GROUP), sort=False):
        estimates = {metric: estimate(group[metric].astype(float)) for metric in METRICS}
        out.append(
            dict(zip(GROUP, key, strict=True))
            | {"n": len(group), "failed": int(group["failed"].sum())}
            | {metric: e.mean for metric, e in estimates.items()}
            | {f"{metric}_sd": e.sd for metric, e in estimates.items()}
        )
    return pd.DataFrame(out)


def request_rows(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """Every request of every run."""
    frames = [run.requests.assign(**identity(spec)) for spec, run in zip(specs, runs, strict=True)]
    return pd.concat(frames, ignore_index=True)


def find(cells: pd.DataFrame, platform: str, system: str, concurrency: int = 0) -> dict[str, Any] | None:
    """The row of that group; None when it was not run."""
    hit = cells[(cells["platform"] == platform) & (cells["system"] == system) & (cells["concurrency"] == concurrency)]
    return None if hit.empty else dict(hit.iloc[0])
