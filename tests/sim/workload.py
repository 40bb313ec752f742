"""A small workload for simulator tests: sessions that grow turn by turn."""

from __future__ import annotations

import numpy as np

from vamp.workloads.trace import GrowingTokens, Session, Trace, Turn


def sessions(n: int, turns: int, growth_tok: int, output_tok: int = 20, think_s: float = 0.0) -> Trace:
    made = []
    for i in range(n):
        ts = tuple(Turn((k + 1) * growth_tok, output_tok, think_s if k else 0.0) for k in range(turns))
        ids = np.random.default_rng(i).integers(3, 150_000, turns * growth_tok + output_tok, dtype=np.int32)
        made.append(Session(f"s{i}", ts, GrowingTokens(ids, ts), start_s=0.1 * i))
    return Trace("test", tuple(made))
