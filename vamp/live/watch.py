"""What the server says of itself while a replay runs: its metrics, twice a second, as the timeline of a run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pandas as pd

from vamp.errors import RunError
from vamp.measure.records import TimelinePoint
from vamp.workloads.client.prometheus import PREEMPTIONS, PREFIX_HITS, PREFIX_QUERIES, Scrape, fetch_metrics

SAMPLE_S = 0.5
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
KV_USAGE = "vllm:kv_cache_usage_perc"  # 0 to 1, of the pool without the null block
OUTPUT_TOK, STEPS = "vllm:generation_tokens", "vllm:iteration_tokens_total_count"
KV_BLOCKS, GROUPS = "vamp_kv_blocks", "vamp_offloaded_groups"


@dataclass(slots=True)
class Watch:
    """Samples of `/metrics`; counters count from the first.

    Args:
        clock: seconds since the run began.
        base_blk: the pool of a server that says nothing about its own, which is plain vLLM: its pool never changes.
    """

    url: str
    clock: Callable[[], float]
    base_blk: int
    samples: list[tuple[float, Scrape]] = field(default_factory=list)

    async def sample(self) -> Scrape:
        """Take one now. Raises RunError: the server does not answer."""
        scrape = await fetch_metrics(self.url)
        self.samples.append((self.clock(), scrape))
        return scrape

    async def keep_sampling(self) -> None:
        """Until cancelled. A busy server that misses one is asked again; that it died is for others to notice."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            try:
                await self.sample()
            except RunError:
                continue

    def timeline(self) -> pd.DataFrame:
        """One row per sample. What the server does not tell is NaN: uncached free blocks, compute and staging time."""
        if not self.samples:
            return _frame([])
        first = self.samples[0][1]
        return _frame([self._point(t_s, scrape, first) for t_s, scrape in self.samples])

    def preemption_s(self) -> list[float]:
        """One entry per preemption: when the sample that first counted it was taken."""
        times: list[float] = []
        for (_, before), (t_s, after) in pairwise(self.samples):
            times += [t_s] * round(counter(after, PREEMPTIONS) - counter(before, PREEMPTIONS))
        return times

    def groups_mean(self) -> float:
        """Mean offloaded groups over the time of the run."""
        points = [(t_s, value_or(scrape, GROUPS, 0.0)) for t_s, scrape in self.samples]
        span_s = points[-1][0] - points[0][0] if points else 0.0
        if span_s <= 0:
            return math.nan
        return sum(g * (t1 - t0) for (t0, g), (t1, _) in pairwise(points)) / span_s

    def _point(self, t_s: float, now: Scrape, first: Scrape) -> dict[str, float]:
        pool_blk = value_or(now, KV_BLOCKS, float(self.base_blk))
        since = {name: counter(now, name) - counter(first, name) for name in (PREFIX_QUERIES, PREFIX_HITS)}
        return {
            "t_s": t_s,
            "step": value_or(now, STEPS, 0.0) - value_or(first, STEPS, 0.0),
            "running": now.value(RUNNING),
            "waiting": now.value(WAITING),
            "pool_blk": pool_blk,
            "free_blk": round((1 - now.value(KV_USAGE)) * (pool_blk - 1)),
            "groups_offloaded": value_or(now, GROUPS, 0.0),
            "queries_tok": since[PREFIX_QUERIES],
            "hits_tok": since[PREFIX_HITS],
            "preemptions": counter(now, PREEMPTIONS) - counter(first, PREEMPTIONS),
            "output_tok": counter(now, OUTPUT_TOK) - counter(first, OUTPUT_TOK),
        }


def _frame(rows: list[dict[str, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(TimelinePoint._fields), dtype="float64")


def counter(scrape: Scrape, name: str) -> float:
    return value_or(scrape, f"{name}_total", 0.0)


def value_or(scrape: Scrape, name: str, otherwise: float) -> float:
    """A counter with labels has no sample before its first increment, and plain vLLM has none of VAMP's."""
    try:
        return scrape.value(name)
    except RunError:
        return otherwise
