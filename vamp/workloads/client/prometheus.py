"""A server's own counters and histograms: two scrapes of `/metrics` and what happened between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from vamp.errors import RunError
from vamp.workloads.client.options import root_url
from vamp.workloads.client.reply import error_text

MAX_METRICS_BYTES = 32 * 1024 * 1024
TTFT = "vllm:time_to_first_token_seconds"
TPOT = "vllm:request_time_per_output_token_seconds"
QUEUE_TIME = "vllm:request_queue_time_seconds"
PREEMPTIONS = "vllm:num_preemptions"
PREFIX_QUERIES, PREFIX_HITS = "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scrape:
    """Samples of one `/metrics` page by name and sorted labels."""

    samples: Mapping[tuple[str, Labels], float]

    @classmethod
    def parse(cls, text: str) -> Scrape:
        """Raises: RunError if `text` is not in Prometheus's text format."""
        try:
            families = list(text_string_to_metric_families(text))
        except (ValueError, IndexError, KeyError) as error:
            raise RunError(f"/metrics is not in Prometheus's text format: {error_text(error)}") from None
        return cls({(s.name, _sorted(s.labels)): s.value for family in families for s in family.samples})

    def value(self, name: str, **labels: str) -> float:
        """Sum over the samples of that name whose labels include `labels`: all engines, unless one is named.

        Raises: RunError if there is none.
        """
        wanted = set(labels.items())
        found = [v for (n, have), v in self.samples.items() if n == name and wanted <= set(have)]
        if not found:
            raise RunError(f"/metrics has no sample {name}{labels or ''}; is it vLLM with statistics on?")
        return sum(found)


@dataclass(frozen=True, slots=True)
class Delta:
    """What a server counted between two scrapes."""

    before: Scrape
    after: Scrape

    def counter(self, name: str, **labels: str) -> float:
        """Increase of a counter; `name` with or without `_total`.

        Raises: RunError if it is missing or went down (the server was restarted).
        """
        return self._increase(name.removesuffix("_total") + "_total", labels)

    def histogram_count(self, name: str, **labels: str) -> float:
        """Observations in between."""
        return self._increase(f"{name}_count", labels)

    def histogram_sum(self, name: str, **labels: str) -> float:
        """Sum of the observations in between."""
        return self._increase(f"{name}_sum", labels)

    def histogram_mean(self, name: str, **labels: str) -> float:
        """Sum of the observations in between over their number; NaN if there was none."""
        count = self.histogram_count(name, **labels)
        return self.histogram_sum(name, **labels) / count if count else math.nan

    def hit_rate_pct(self) -> float:
        """vLLM's prefix-cache hits over queries, tokens, percent; NaN without queries."""
        queries = self.counter(PREFIX_QUERIES)
        return 100.0 * self.counter(PREFIX_HITS) / queries if queries else math.nan

    def _increase(self, sample: str, labels: dict[str, str]) -> float:
        after = self.after.value(sample, **labels)
        try:
            before = self.before.value(sample, **labels)
        except RunError:
            before = 0.0  # a labelled counter does not exist before its first increment
        if not after >= before:
            raise RunError(f"{sample} went from {before:g} to {after:g}; the server was restarted, measure again")
        return after - before


async def fetch_metrics(base_url: str, *, timeout_s: float = 30.0) -> Scrape:
    """Scrape the server's `/metrics`.

    Raises: RunError if it does not answer within `timeout_s`, answers with an error, or with too much.
    """
    url = root_url(base_url) / "metrics"
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as response:
            raw = bytearray()
            async for chunk in response.content.iter_any():
                raw += chunk
                if len(raw) > MAX_METRICS_BYTES:
                    raise RunError(f"{url}: more than {MAX_METRICS_BYTES} bytes; is this a metrics page?")
    except TimeoutError:
        raise RunError(f"{url}: no complete answer within {timeout_s:g} s; is the server alive?") from None
    except (aiohttp.ClientError, OSError) as error:
        raise RunError(f"{url}: no answer ({error_text(error)}); is the server alive?") from None
    text = raw.decode("utf-8", errors="replace")
    if response.status != 200:
        raise RunError(f"{url}: HTTP {response.status}: {error_text(text)}")
    return Scrape.parse(text)


def _sorted(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
