from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from tests.workloads.client.peer import (
    DONE,
    Peer,
    Script,
    chunk,
    dripping,
    good_parts,
    obedient,
    one_turn,
    scripted,
    serving,
    session,
    stream,
    trace,
    usage,
)
from vamp.errors import RunError
from vamp.measure import latency
from vamp.measure.records import RequestRecord
from vamp.workloads.client import ClientOptions, ReplayResult, replay_async
from vamp.workloads.trace import Trace


def run(
    script: Script, what: Trace, on_turn: Callable[..., None] | None = None, **settings: Any
) -> tuple[ReplayResult, Peer]:
    async def both() -> tuple[ReplayResult, Peer]:
        async with serving(script) as peer:
            return await replay_async(what, ClientOptions(peer.url, **settings), on_turn), peer

    return asyncio.run(both())


def test_one_turn() -> None:
    result, _ = run(scripted(0.05, chunk(7), 0.03, chunk(8), 0.02, chunk(9), usage(3), DONE), one_turn())
    (turn,) = result.turns
    record = turn.record
    assert (record.session_id, record.turn, record.prompt_tok, record.output_tok, record.error) == ("a", 0, 4, 3, "")
    assert record.first_token_s is not None and record.finish_s is not None
    assert 0.05 <= record.first_token_s - record.arrival_s < 1
    assert len(turn.itl_s) == 2 and turn.itl_s[0] >= 0.025 and turn.itl_s[1] >= 0.015
    assert record.finish_s - record.first_token_s == pytest.approx(sum(turn.itl_s))
    assert turn.token_ids == [7, 8, 9]
    assert 0 <= record.arrival_s <= record.finish_s <= result.wall_s
    assert (result.stopped, result.unsent_turns, dict(result.failures)) == ("", 0, {})
    assert len(latency.ttft_s(result.frame)) == 1


def test_what_is_sent() -> None:
    what = one_turn(5)
    _, peer = run(obedient, what, api_key="k")
    (body,) = peer.bodies
    assert body == {
        "model": "tiny",
        "prompt": what.sessions[0].tokens.prompt(0).tolist(),
        "max_tokens": 5,
        "min_tokens": 5,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    assert peer.headers[0]["Authorization"] == "Bearer k"
    assert run(obedient, what, return_token_ids=False)[1].bodies[0].keys() == body.keys() - {"return_token_ids"}


@pytest.mark.parametrize("eol", [b"\n", b"\r\n", b"\r"])
def test_stream_in_single_bytes(eol: bytes) -> None:
    """Split in the middle of everything, with comments and characters of several bytes."""
    whole = b": ping\n\n" + chunk(7, text="é🙂") + chunk(8, 9, text="日") + usage(3) + DONE
    result, _ = run(scripted(*(bytes([b]) for b in whole.replace(b"\n", eol))), one_turn())
    assert result.turns[0].record.error == ""
    assert result.turns[0].token_ids == [7, 8, 9]


def test_all_events_in_one_chunk() -> None:
    result, _ = run(scripted(b"".join(p for p in good_parts(3) if isinstance(p, bytes))), one_turn())
    assert result.turns[0].token_ids == [7, 8, 9]
    assert result.turns[0].itl_s == [0.0, 0.0]


def test_end_mark_missing() -> None:
    result, _ = run(scripted(*good_parts(3)[:-1]), one_turn())
    assert result.turns[0].record.error == ""
    assert result.turns[0].record.cached_tok == 2


def test_stream_that_stays_open_after_the_end_mark() -> None:
    result, _ = run(scripted(*good_parts(3), 5.0), one_turn(), request_timeout_s=2.0)
    assert result.turns[0].record.error == "" and result.wall_s < 2


def test_cached_tokens_known_or_not() -> None:
    known, _ = run(obedient, one_turn())
    assert known.cached_tok_known and known.turns[0].record.cached_tok == 2
    silent, _ = run(scripted(chunk(1), chunk(2), chunk(3), usage(3), DONE), one_turn())
    assert not silent.cached_tok_known and silent.turns[0].record.cached_tok == 0


def test_queue_time_of_the_server() -> None:
    metrics = b'data: {"choices": [], "usage": {"completion_tokens": 1}, "metrics": {"queue_time_ms": 125.0}}\n\n'
    result, _ = run(scripted(chunk(1), metrics, DONE), one_turn(1))
    assert latency.queue_s(result.frame) == pytest.approx([0.125])
    record = run(obedient, one_turn(1))[0].turns[0].record
    assert record.queued_s is None and record.scheduled_s is None


async def _reset(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(chunk(7))
    await asyncio.sleep(0.05)
    assert request.transport is not None
    request.transport.abort()
    return response


def _answer(status: int, text: str, content_type: str = "text/plain") -> Script:
    async def script(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status, text=text, content_type=content_type)

    return script


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (_answer(500, "engine\n died"), "HTTP 500: engine died"),
        (_answer(400, '{"error": {"message": "too long"}}'), "HTTP 400: too long"),
        (_answer(503, "x" * 10_000), "HTTP 503: " + "x" * 200),
        (_answer(307, ""), "HTTP 307: Temporary Redirect"),
        (_answer(200, '{"choices": []}', "application/json"), "empty stream: the answer is application/json, not"),
        (_reset, "connection lost after 1 of 3 tokens: "),
        (scripted(), "empty stream: no token came"),
        (scripted(DONE), "empty stream: no token came"),
        (scripted(chunk(7), b"data: {\n\n"), "malformed event in the stream: '{'"),
        (scripted(chunk(7), b'data: {"choices": [{"te'), "malformed event in the stream: "),
        (scripted(chunk(7), b'data: {"error": {"message": "boom"}}\n\n', DONE), "error in the stream: boom"),
        (scripted(chunk(7), usage(1), DONE), "server returned 1 tokens, 3 asked"),
        (scripted(*[chunk(7)] * 4), "server returned 4 tokens or more, 3 asked"),
        (scripted(chunk(7), b"data: " + b"x" * 2000), "event stream: a line is longer than 1000 bytes"),
        (scripted(chunk(7), 5.0), "timeout: 1 of 3 tokens within 1 s"),
        (scripted(5.0), "timeout: 0 of 3 tokens within 1 s"),
    ],
)
def test_failure_is_counted_with_its_reason_and_not_timed(script: Script, error: str) -> None:
    result, _ = run(script, one_turn(), request_timeout_s=1.0, max_line_bytes=1000)
    (record,) = result.requests
    assert record.error.startswith(error)
    assert "\n" not in record.error and len(record.error) < 300
    assert record.finish_s is None
    assert len(latency.ttft_s(result.frame)) == 0 and latency.n_failed(result.frame) == 1
    assert result.failures == {record.error: 1}


def test_nobody_listens() -> None:
    options = ClientOptions("http://127.0.0.1:1", model="m", return_token_ids=True)
    (record,) = asyncio.run(replay_async(one_turn(), options)).requests
    assert record.error.startswith("connection failed: ") and record.first_token_s is None


def test_every_tenth_stream_is_empty() -> None:
    async def script(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        empty = len(peer.bodies) % 10 == 0
        return await stream(request, [] if empty else [0.02, *good_parts(body["max_tokens"])])

    result, _ = run(script, trace(*(session(str(n), [(4, 2, 0.0)]) for n in range(40))), concurrency=4)
    assert latency.n_failed(result.frame) == 4
    ttft_s = latency.ttft_s(result.frame)
    assert len(ttft_s) == 36 and ttft_s.min() >= 0.015


def test_a_failed_turn_ends_its_session_or_goes_on() -> None:
    async def second_fails(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if len(peer.bodies) == 2:
            return web.Response(status=500, text="no")
        return await obedient(peer, request, body)

    what = trace(session("a", [(4, 2, 0.0), (8, 2, 0.0), (12, 2, 0.0)]), session("b", [(4, 2, 0.0)]))
    ended, _ = run(second_fails, what, concurrency=1)
    assert [(r.session_id, r.turn, r.error) for r in ended.requests] == [
        ("a", 0, ""),
        ("a", 1, "HTTP 500: no"),
        ("b", 0, ""),
    ]
    assert ended.unsent_turns == 1
    went_on, _ = run(second_fails, what, concurrency=1, go_on_after_failure=True)
    assert [r.error for r in went_on.requests] == ["", "HTTP 500: no", "", ""]
    assert went_on.unsent_turns == 0


def test_closed_loop_think_times_and_starts() -> None:
    what = trace(
        session("late", [(4, 1, 0.0)], start_s=0.3),
        session("a", [(4, 2, 0.1), (8, 2, 0.2)], start_s=0.05),
    )
    result, _ = run(scripted(0.05, chunk(1), 0.05, chunk(2), usage(2), DONE), what, go_on_after_failure=True)
    first, second = [r for r in result.requests if r.session_id == "a"]
    (late,) = [r for r in result.requests if r.session_id == "late"]
    assert first.finish_s is not None
    assert 0.15 <= first.arrival_s < 0.5
    assert 0.2 <= second.arrival_s - first.finish_s < 0.6
    assert 0.3 <= late.arrival_s < 0.7
    assert [r.arrival_s for r in result.requests] == sorted(r.arrival_s for r in result.requests)


def test_think_time_begins_at_the_last_token() -> None:
    what = trace(session("a", [(4, 1, 0.0), (8, 1, 0.5)]))
    first, second = run(scripted(chunk(7), 0.4, usage(1), DONE), what)[0].requests
    assert first.finish_s is not None
    assert 0.5 <= second.arrival_s - first.finish_s < 0.8


@pytest.mark.parametrize("limit", [1, 3])
def test_limit_on_live_sessions(limit: int) -> None:
    async def slow(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, good_parts(body["max_tokens"], pause_s=0.02))

    result, peer = run(slow, trace(*(session(str(n), [(4, 2, 0.0)] * 2) for n in range(6))), concurrency=limit)
    assert peer.most_open == limit
    assert len(result.requests) == 12 and not result.failures
    started = list(dict.fromkeys(r.session_id for r in result.requests))
    assert started == [str(n) for n in range(6)]


def test_without_a_limit_all_sessions_live() -> None:
    _, peer = run(scripted(0.2, *good_parts(1)), trace(*(session(str(n), [(4, 1, 0.0)]) for n in range(6))))
    assert peer.most_open == 6


def test_no_sessions() -> None:
    assert run(obedient, trace())[0].turns == ()


def test_on_turn_sees_failures_too() -> None:
    seen: list[RequestRecord] = []
    result, _ = run(scripted(), one_turn(), seen.append)
    assert seen == result.requests and seen[0].error


def test_error_of_on_turn_stops_the_run_and_is_passed_on() -> None:
    def full(record: RequestRecord) -> None:
        raise RunError("no space left")

    async def both() -> Peer:
        async with serving(second_waits) as peer:
            with pytest.raises(RunError, match="no space left"):
                await replay_async(trace(*(session(n, [(4, 1, 0.0)]) for n in "ab")), ClientOptions(peer.url), full)
            while peer.open:
                await asyncio.sleep(0.02)
            return peer

    async def second_waits(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, good_parts(1) if len(peer.bodies) == 1 else dripping(0.01))

    peer = asyncio.run(asyncio.wait_for(both(), 8))
    assert peer.closed_early == len(peer.bodies) - 1


def test_server_replies_are_carried_into_later_prompts() -> None:
    what = trace(session("a", [(4, 3, 0.0), (9, 2, 0.0)]))
    recorded = what.sessions[0].tokens.prompt(1).tolist()
    _, peer = run(obedient, what, carry_replies=True)
    assert peer.bodies[1]["prompt"] == [*recorded[:4], 7, 8, 9, *recorded[7:]]
    _, peer = run(obedient, what)
    assert peer.bodies[1]["prompt"] == recorded
    no_ids = scripted(*(chunk(with_ids=False) for _ in range(3)), usage(3), DONE)
    result, _ = run(no_ids, what, carry_replies=True)
    assert result.requests[0].error == "no token ids came, carry_replies needs them"


def test_run_stops_at_its_time_limit() -> None:
    what = trace(session("a", [(4, 1, 0.0), (8, 3, 0.0)]), session("b", [(4, 1, 9.0)]))

    async def second_hangs(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, good_parts(1) if body["max_tokens"] == 1 else [chunk(7), 9.0])

    result, _ = run(second_hangs, what, max_run_s=0.8)
    assert [r.error for r in result.requests] == ["", "still running after 0.8 s"]
    assert (result.stopped, result.unsent_turns) == ("still running after 0.8 s", 1)


def test_cancel_closes_open_requests_and_returns_the_records() -> None:
    async def drip(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, dripping(0.01))

    async def both() -> tuple[ReplayResult, Peer, bool]:
        async with serving(drip) as peer:
            what = trace(*(session(str(n), [(4, 3, 0.0)]) for n in range(3)))
            task = asyncio.create_task(replay_async(what, ClientOptions(peer.url, concurrency=2)))
            while peer.open < 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            task.cancel()
            result = await task
            for _ in range(100):
                await asyncio.sleep(0.02)
                if peer.open == 0:
                    break
            return result, peer, task.cancelled()

    result, peer, cancelled = asyncio.run(both())
    assert not cancelled and peer.open == 0 and peer.closed_early == 2
    assert result.stopped.startswith("cancelled after ") and result.unsent_turns == 1
    assert [r.error for r in result.requests] == [result.stopped] * 2
    assert [r.finish_s for r in result.requests] == [None, None]
    assert result.requests[0].first_token_s is not None
