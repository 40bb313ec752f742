"""Section VI-E: Q(T, P), the requests per second of a window that meet a TTFT and a TPOT limit."""

from __future__ import annotations

import pandas as pd

from vamp.measure.window import Window


def qualified_per_s(requests: pd.DataFrame, window: Window, *, ttft_s: float, tpot_ms: float) -> float:
    """Q(T, P) = N_qualified / W.

    A request qualifies when it completes inside the window with TTFT <= T and TPOT <= P, as its client measured them;
    failed and unfinished ones count as misses. A one-token reply has no TPOT and meets every limit on it.

    Args:
        ttft_s: T, seconds. tpot_ms: P, milliseconds.
    """
    done = window.completed(requests)
    first_s, last_s = (pd.to_numeric(done[c]) for c in ("first_token_s", "finish_s"))
    decode_ms = (last_s - first_s) * 1e3
    ok = (first_s - done["arrival_s"] <= ttft_s) & (decode_ms <= tpot_ms * (done["output_tok"] - 1).clip(lower=0))
    return float(ok.sum()) / window.duration_s
