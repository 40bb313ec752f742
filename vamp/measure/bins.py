"""A run cut into equal stretches of time, as Fig. 6 shows it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from vamp.measure.records import RunResult

Floats = npt.NDArray[np.float64]


def binned(result: RunResult, bin_s: float, end_s: float) -> pd.DataFrame:
    """One row per bin [start_s, start_s + bin_s), up to `end_s`; NaN where there was nothing to average.

    Columns: start_s; kv_util, the share of the pool's blocks that requests hold, and running and waiting, means over
    time; preemptions; ttft_mean_s and requests, of the requests whose first token came in the bin.
    """
    edges: Floats = np.arange(round(end_s / bin_s) + 1, dtype=np.float64) * bin_s
    line = result.timeline
    t_s = line["t_s"].to_numpy(dtype=np.float64)
    used = 1.0 - line["free_blk"] / (line["pool_blk"] - 1)  # without the null block, as vLLM's own gauge
    first_s = pd.to_numeric(result.requests["first_token_s"])
    ttft_s = (first_s - result.requests["arrival_s"]).to_numpy(dtype=np.float64)
    requests, _ = np.histogram(first_s.dropna(), edges)
    total_s, _ = np.histogram(first_s.dropna(), edges, weights=ttft_s[first_s.notna().to_numpy()])
    return pd.DataFrame(
        {
            "start_s": edges[:-1],
            "kv_util": time_means(t_s, used.to_numpy(dtype=np.float64), edges),
            "running": time_means(t_s, line["running"].to_numpy(dtype=np.float64), edges),
            "waiting": time_means(t_s, line["waiting"].to_numpy(dtype=np.float64), edges),
            "preemptions": np.histogram(result.preemption_s, edges)[0],
            "requests": requests,
            "ttft_mean_s": [t / n if n else math.nan for t, n in zip(total_s, requests, strict=True)],
        }
    )


def time_means(t_s: Floats, values: Floats, edges: Floats) -> Floats:
    """Mean over time of a sampled state in each bin, shape (len(edges) - 1,).

    A state holds from its sample to the next one. A bin that the samples cover in part is averaged over that part; NaN
    where they cover nothing of it.
    """
    if len(t_s) < 2:
        return np.full(len(edges) - 1, math.nan)
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(t_s))])
    inside = np.clip(edges, t_s[0], t_s[-1])
    covered = np.diff(inside)
    sums = np.diff(np.interp(inside, t_s, area))
    means: Floats = np.divide(sums, covered, out=np.full(len(covered), math.nan), where=covered > 0)
    return means
