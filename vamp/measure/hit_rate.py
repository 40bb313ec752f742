"""Prefix-cache hit rate, twice.

The paper read vLLM's counters. They count every admission attempt, failed ones too, so under pressure the
same prompt is queried many times (ARCHITECTURE 7b). Beside it stands the honest rate: what each request's
first prefill took from the cache. Both are deltas over the stated window, never a moving average.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from vamp.measure.window import Window


def counter_delta(timeline: pd.DataFrame, counter: str, window: Window) -> float:
    """Growth of a cumulative counter inside the window; NaN without a timeline.

    The timeline is sampled, so the value at a time is that of the last sample at or before it, 0 before the
    first.
    """
    if timeline.empty or not window.duration_s >= 0:
        return float("nan")
    times = timeline["t_s"].to_numpy(dtype=np.float64)
    values = np.concatenate([[0.0], timeline[counter].to_numpy(dtype=np.float64)])
    start, end = np.searchsorted(times, [window.start_s, window.end_s], side="right")
    return float(values[end] - values[start])


def counter_hit_rate_pct(timeline: pd.DataFrame, window: Window) -> float:
    """Hits over queries, tokens, by server counters; NaN when nothing was queried."""
    return _pct(counter_delta(timeline, "hits_tok", window), counter_delta(timeline, "queries_tok", window))


def request_hit_rate_pct(requests: pd.DataFrame) -> float:
    """Cached over prompt tokens of requests that were scheduled at least once; NaN when there are none."""
    seen = requests[requests["scheduled_s"].notna()]
    return _pct(float(seen["cached_tok"].sum()), float(seen["prompt_tok"].sum()))


def _pct(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole > 0 else float("nan")
