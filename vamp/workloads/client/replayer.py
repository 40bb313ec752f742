"""Replay a trace, or let agents work, in closed loop against a live server.

A session sends its next turn `think_s` after the previous one completed. At most `concurrency` sessions are alive; when
one ends, the next in order of `start_s` begins, not before its own `start_s`: the simulator's rule (vamp.sim.arrivals).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import aiohttp

from vamp.measure.records import RequestRecord
from vamp.workloads.client.options import ClientOptions
from vamp.workloads.client.records import UNFINISHED, ClientTurn, ReplayResult
from vamp.workloads.client.request import Sender
from vamp.workloads.client.server import discover
from vamp.workloads.client.talks import Asked, RecordedTalk, Talk
from vamp.workloads.trace import Trace

OnTurn = Callable[[RequestRecord], None]


def replay(trace: Trace, options: ClientOptions, on_turn: OnTurn | None = None) -> ReplayResult:
    """`replay_async` for callers without an event loop. Ctrl-C stops the run and returns the records so far."""
    return asyncio.run(replay_async(trace, options, on_turn))


async def replay_async(trace: Trace, options: ClientOptions, on_turn: OnTurn | None = None) -> ReplayResult:
    """Replay `trace`; `on_turn` is called after each request, failed or not.

    Failed requests are in the result with their reason. If the calling task is cancelled, every open request is closed
    and the records so far are returned, the open ones as failed (`ReplayResult.stopped` says so). A cancellation before
    the run began is passed on.

    Raises: RunError if `/v1/models` is needed (see `ClientOptions.model`) and the server does not give it. An error of
        `on_turn` closes every open request and is passed on.
    """
    talks = [
        RecordedTalk(session, options.vocab_tok, options.carry_replies)
        for session in sorted(trace.sessions, key=lambda session: session.start_s)
    ]
    done = await converse_async(talks, options, on_turn)
    return replace(done, unsent_turns=trace.n_turns - len(done.turns))


async def converse_async(talks: Sequence[Talk], options: ClientOptions, on_turn: OnTurn | None = None) -> ReplayResult:
    """As `replay_async`, for sessions of any kind, which begin in this order. How many turns were never sent is not
    known: `unsent_turns` is 0."""
    # Every request has its own connection: one that idles through a think time may be closed by the server at the very
    # moment it is used again, which would count as a failure. The number of sessions is limit enough.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:
        served = await discover(http, options)
        began_unix_s, began_s = time.time(), time.monotonic()

        def clock() -> float:
            return time.monotonic() - began_s

        run = _Run(talks, options, Sender(http, options, served, clock), clock, on_turn)
        stopped = await run.until_done()
        return ReplayResult(
            turns=tuple(run.turns),
            unsent_turns=0,
            wall_s=clock(),
            began_unix_s=began_unix_s,
            stopped=stopped,
        )


class _Run:
    """One run under way."""

    def __init__(
        self,
        talks: Sequence[Talk],
        options: ClientOptions,
        sender: Sender,
        clock: Callable[[], float],
        on_turn: OnTurn | None,
    ) -> None:
        self.turns: list[ClientTurn] = []
        self._options, self._sender, self._clock, self._on_turn = options, sender, clock, on_turn
        self._pending = deque(talks)

    async def until_done(self) -> str:
        """Returns: why the run stopped before every session ended; "" if it did not."""
        n_slots = min(self._options.concurrency or len(self._pending), len(self._pending))
        stopped, limit_s = "", self._options.max_run_s
        try:
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as slots:
                for _ in range(n_slots):
                    slots.create_task(self._slot())
        except TimeoutError:
            stopped = f"still running after {limit_s:g} s"
        except asyncio.CancelledError:
            stopped = f"cancelled after {self._clock():.1f} s"
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()  # the cancellation ends here: its answer is the records
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the task group closed the other requests; the first error says why
        for turn in self.turns:
            if turn.record.error == UNFINISHED:
                turn.record.error = stopped
        return stopped

    async def _slot(self) -> None:
        """One live session after another."""
        while self._pending:
            await self._session(self._pending.popleft())

    async def _session(self, talk: Talk) -> None:
        since_s = max(self._clock(), talk.start_s)
        while (asked := talk.ask()) is not None:
            body = self._sender.body(asked.prompt, asked.turn.output_tok)
            await asyncio.sleep(since_s + asked.turn.think_s - self._clock())
            sent = await self._turn(talk.session_id, asked, body)
            if sent.record.error and not self._options.go_on_after_failure:
                return
            if not sent.record.error:
                talk.heard(sent.token_ids)
            since_s = self._clock() if sent.record.finish_s is None else sent.record.finish_s

    async def _turn(self, session_id: str, asked: Asked, body: bytes) -> ClientTurn:
        turn, now_s = asked.turn, self._clock()
        record = RequestRecord(session_id, asked.number, turn.prompt_tok, turn.output_tok, now_s, error=UNFINISHED)
        sent = ClientTurn(record)
        self.turns.append(sent)
        await self._sender.send(sent, body)
        if self._on_turn:
            self._on_turn(record)
        return sent
