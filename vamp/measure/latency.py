"""Latencies of one run's requests, as section VI-A measures them.

TTFT runs from the client's send to its first token. The first token is no inter-token interval: a reply of n
tokens has n - 1 of them, so TPOT divides by n - 1 and a one-token reply has no TPOT. Only finished requests
are timed; the others are counted by `n_failed` and never enter as zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from vamp.measure.records import CUT

Seconds = npt.NDArray[np.float64]


def finished(requests: pd.DataFrame) -> pd.DataFrame:
    """Requests that ended without an error, with a first token and a last one."""
    ok = (requests["error"] == "") & requests["first_token_s"].notna() & requests["finish_s"].notna()
    return requests[ok]


def n_failed(requests: pd.DataFrame) -> int:
    """Requests that failed or never finished, without those that the end of a run of fixed length cut off."""
    return len(requests) - len(finished(requests)) - n_cut(requests)


def n_cut(requests: pd.DataFrame) -> int:
    """Requests that were under way when a run of fixed length ended."""
    return int((requests["error"] == CUT).sum())


def ttft_s(requests: pd.DataFrame) -> Seconds:
    """Time to first token of every finished request, shape (n_finished,)."""
    done = finished(requests)
    return _column(done, "first_token_s") - _column(done, "arrival_s")


def queue_s(requests: pd.DataFrame) -> Seconds:
    """vLLM's queue time: from its receipt by the scheduler to its first scheduled step, shape (n_finished,)."""
    done = finished(requests)
    return _column(done, "scheduled_s") - _column(done, "queued_s")


def tpot_ms(requests: pd.DataFrame) -> Seconds:
    """(finish - first token) / (output tokens - 1), ms, of finished requests with at least two output tokens.

    Its mean is the mean of the server's TPOT histogram, which is what the paper reports.
    """
    done = finished(requests)
    done = done[done["output_tok"] >= 2]
    decode_s = _column(done, "finish_s") - _column(done, "first_token_s")
    return decode_s / (_column(done, "output_tok") - 1) * 1e3


def percentiles(values: Seconds, percents: Sequence[float]) -> tuple[float, ...]:
    """Percentiles with linear interpolation; NaN when there are no values."""
    if len(values) == 0:
        return (float("nan"),) * len(percents)
    return tuple(float(p) for p in np.percentile(values, percents))


def mean(values: Seconds) -> float:
    """Arithmetic mean; NaN when there are no values."""
    return float(values.mean()) if len(values) else float("nan")


def _column(frame: pd.DataFrame, name: str) -> Seconds:
    # A column of only None is read back as object; numbers are wanted in every case.
    return pd.to_numeric(frame[name]).to_numpy(dtype=np.float64)
