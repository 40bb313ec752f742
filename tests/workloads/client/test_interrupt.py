"""Ctrl-C, as a terminal sends it: a signal to the main thread while `replay` runs there."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tests.workloads.client.peer import Peer, dripping, one_turn, scripted, serving
from vamp.workloads.client import ClientOptions, replay


class PeerThread:
    """A peer with an event loop of its own. It sends SIGINT once, when a request has its first token."""

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.up, self.stop = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        async with serving(scripted(*dripping(0.02))) as self.peer:
            self.up.set()
            while not self.peer.open:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            # Python's own handler would stop the test run; asyncio's is there as long as `replay` runs.
            if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                os.kill(os.getpid(), signal.SIGINT)
            while not self.stop.is_set():
                await asyncio.sleep(0.02)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A test run in the background ignores Ctrl-C; asyncio then leaves it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_closes_open_requests_and_returns_the_records() -> None:
    server = PeerThread()
    server.thread.start()
    try:
        assert server.up.wait(10) and server.peer is not None
        result = replay(one_turn(), ClientOptions(server.peer.url, request_timeout_s=10.0))
        deadline = time.monotonic() + 5
        while server.peer.open and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.peer.open == 0
    finally:
        server.stop.set()
        server.thread.join(10)
    (record,) = result.requests
    assert record.error == result.stopped and result.stopped.startswith("cancelled after ")
    assert record.first_token_s is not None and record.finish_s is None
