from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from tests.workloads.client.peer import obedient, serving
from vamp.errors import RunError
from vamp.workloads.client import Delta, Scrape, fetch_metrics
from vamp.workloads.client import prometheus as module


class Books:
    """Counters and histograms of an imaginary server with two engines."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.queries = Counter("vllm:prefix_cache_queries", "q", ["engine"], registry=self.registry)
        self.hits = Counter("vllm:prefix_cache_hits", "h", ["engine"], registry=self.registry)
        self.ttft = Histogram("vllm:time_to_first_token_seconds", "t", ["engine"], registry=self.registry)

    def scrape(self) -> Scrape:
        return Scrape.parse(generate_latest(self.registry).decode())


def test_histogram_mean_is_of_what_came_in_between() -> None:
    books = Books()
    books.ttft.labels("0").observe(100.0)
    before = books.scrape()
    for seconds in (1.0, 2.0, 4.5):
        books.ttft.labels("0").observe(seconds)
    delta = Delta(before, books.scrape())
    assert delta.histogram_count(module.TTFT) == 3
    assert delta.histogram_mean(module.TTFT) == pytest.approx(2.5)
    assert Delta(Books().scrape(), books.scrape()).histogram_mean(module.TTFT) == pytest.approx(107.5 / 4)
    assert math.isnan(Delta(before, before).histogram_mean(module.TTFT))


def test_engines_are_summed_or_taken_one_by_one() -> None:
    books = Books()
    books.queries.labels("0").inc(10)
    before = books.scrape()
    books.queries.labels("0").inc(5)
    books.queries.labels("1").inc(7)
    delta = Delta(before, books.scrape())
    assert delta.counter("vllm:prefix_cache_queries") == 12
    assert delta.counter("vllm:prefix_cache_queries_total", engine="0") == 5
    assert delta.counter("vllm:prefix_cache_queries", engine="1") == 7, "it did not exist before"


def test_hit_rate_from_deltas_of_three_rounds() -> None:
    books = Books()
    scrapes = []
    for queries, hits in ((0, 0), (100, 0), (300, 240), (100, 90)):
        books.queries.labels("0").inc(queries)
        books.hits.labels("0").inc(hits)
        scrapes.append(books.scrape())
    assert [Delta(a, b).hit_rate_pct() for a, b in pairwise(scrapes)] == [0, 80, 90]
    assert Delta(scrapes[0], scrapes[-1]).hit_rate_pct() == pytest.approx(66.0)
    assert math.isnan(Delta(scrapes[0], scrapes[0]).hit_rate_pct())


def test_restarted_server() -> None:
    books, restarted = Books(), Books()
    books.hits.labels("0").inc(5)
    restarted.hits.labels("0").inc(1)
    with pytest.raises(RunError, match="vllm:prefix_cache_hits_total went from 5 to 1; the server was restarted"):
        Delta(books.scrape(), restarted.scrape()).counter(module.PREFIX_HITS)


def test_missing_sample() -> None:
    scrape = Books().scrape()
    with pytest.raises(RunError, match="no sample nonsense_total; is it vLLM"):
        Delta(scrape, scrape).counter("nonsense")


@pytest.mark.parametrize("text", ["a{", 'a{b="c} 1', "a one", "<html>"])
def test_not_a_metrics_page(text: str) -> None:
    with pytest.raises(RunError, match="not in Prometheus's text format"):
        Scrape.parse(text)


def test_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both() -> None:
        async with serving(obedient) as peer:
            peer.metrics_text = 'x_total{a="1"} 3\nx_total{a="2"} 4\n'
            assert (await fetch_metrics(peer.url + "/v1")).value("x_total") == 7
            with pytest.raises(RunError, match="HTTP 404"):
                await fetch_metrics(peer.url + "/elsewhere")
            monkeypatch.setattr(module, "MAX_METRICS_BYTES", 10)
            with pytest.raises(RunError, match="more than 10 bytes"):
                await fetch_metrics(peer.url)

    asyncio.run(both())
    with pytest.raises(RunError, match=r"no answer .*is the server alive"):
        asyncio.run(fetch_metrics("http://127.0.0.1:1"))


def test_fetch_from_a_server_that_hangs() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async def both() -> None:
        async with serving(obedient) as peer:
            app = web.Application()
            app.router.add_get("/metrics", hang)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            try:
                port = runner.addresses[0][1]
                with pytest.raises(RunError, match=r"no complete answer within 0.2 s"):
                    await fetch_metrics(f"http://127.0.0.1:{port}", timeout_s=0.2)
            finally:
                await runner.cleanup()
            assert peer.open == 0

    asyncio.run(both())
