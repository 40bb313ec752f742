"""The client's clocks against a server that keeps histograms of its own."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from tests.workloads.client.peer import DONE, Peer, chunk, serving, session, trace, usage
from vamp.errors import RunError
from vamp.workloads.client import Agreement, ClientOptions, Delta, agreement, fetch_metrics, replay_async
from vamp.workloads.client.prometheus import TPOT, TTFT
from vamp.workloads.trace import Trace


class TimingServer:
    """Streams slowly and observes TTFT and TPOT as vLLM does: 0 for the TPOT of a one-token reply.

    Args:
        skew: multiplies what it observes; 1 is honest.
        observe_twice: as if somebody else used the server too.
    """

    def __init__(self, skew: float = 1.0, observe_twice: bool = False) -> None:
        self.registry = CollectorRegistry()
        self.ttft = Histogram(TTFT, "t", registry=self.registry)
        self.tpot = Histogram(TPOT, "t", registry=self.registry)
        self.skew, self.times = skew, 2 if observe_twice else 1

    async def script(self, peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        began, n_tok = time.monotonic(), body["max_tokens"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        written: list[float] = []
        for n in range(n_tok):
            await asyncio.sleep(0.02 if n else 0.1 + 0.02 * len(body["prompt"]))
            written.append(time.monotonic())
            await response.write(chunk(n))
        for _ in range(self.times):
            self.ttft.observe(self.skew * (written[0] - began))
            self.tpot.observe(self.skew * (written[-1] - written[0]) / (n_tok - 1) if n_tok > 1 else 0.0)
        peer.metrics_text = generate_latest(self.registry).decode()
        await response.write(usage(n_tok) + DONE)
        return response


WORK = trace(*(session(str(n), [(2, 9, 0.0), (12, 1 + 6 * (n % 2), 0.01)]) for n in range(6)))


def compared(server: TimingServer, what: Trace = WORK) -> Agreement:
    async def both() -> Agreement:
        async with serving(server.script) as peer:
            peer.metrics_text = generate_latest(server.registry).decode()
            before = await fetch_metrics(peer.url)
            result = await replay_async(what, ClientOptions(peer.url, concurrency=4))
            assert not result.failures
            return agreement(result.frame, Delta(before, await fetch_metrics(peer.url)))

    return asyncio.run(both())


def test_honest_server_agrees_within_5_pct() -> None:
    found = compared(TimingServer())
    assert abs(found.ttft_gap_pct) < 5 and abs(found.tpot_gap_pct) < 5
    assert 0.1 < found.ttft_server_s < 1 and 0.02 <= found.tpot_server_s < 0.1


def test_server_with_another_clock_does_not() -> None:
    found = compared(TimingServer(skew=1.2))
    assert found.ttft_gap_pct < -5 and found.tpot_gap_pct < -5


def test_requests_of_somebody_else() -> None:
    with pytest.raises(RunError, match="has 24 requests, the client sent 12 of which 12 finished"):
        compared(TimingServer(observe_twice=True))


def test_no_request_of_two_tokens() -> None:
    with pytest.raises(RunError, match="no finished request with two or more output tokens"):
        compared(TimingServer(), trace(session("a", [(2, 1, 0.0)])))
