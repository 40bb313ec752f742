"""A small streaming server to talk to: it says what a script tells it, and keeps its own books."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.test_utils import TestServer

from vamp.workloads.trace import GrowingTokens, Session, Trace, Turn

DONE = b"data: [DONE]\n\n"
Script = Callable[["Peer", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def event(body: Any) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def chunk(*ids: int, text: str = "x", with_ids: bool = True) -> bytes:
    choice: dict[str, Any] = {"index": 0, "text": text}
    if with_ids:
        choice["token_ids"] = list(ids)
    return event({"object": "text_completion", "choices": [choice]})


def usage(completion_tok: int, **more: Any) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": completion_tok, **more}})


class Peer:
    """State that scripts and tests share. `bodies` are the requests in order of receipt."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.received_s: list[float] = []
        self.open = self.most_open = self.closed_early = 0
        self.models: Any = {"object": "list", "data": [{"id": "tiny", "owned_by": "vllm"}]}
        self.metrics_text = ""
        self.url = ""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        self.received_s.append(asyncio.get_running_loop().time())
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self.script(self, request, body)
        except (ConnectionError, asyncio.CancelledError):
            self.closed_early += 1
            raise
        finally:
            self.open -= 1

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response(self.models)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.metrics_text)


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Peer]:
    peer = Peer(script)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/completions", peer.completions)
    app.router.add_get("/v1/models", peer.list_models)
    app.router.add_get("/metrics", peer.metrics)
    async with TestServer(app, host="127.0.0.1") as server:
        peer.url = str(server.make_url("")).rstrip("/")
        yield peer


async def stream(request: web.Request, parts: Sequence[bytes | float]) -> web.StreamResponse:
    """Write the parts as they are; a number is a pause in seconds."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for part in parts:
        if isinstance(part, bytes):
            await response.write(part)
        else:
            await asyncio.sleep(part)
    await response.write_eof()
    return response


def scripted(*parts: bytes | float) -> Script:
    """The same parts for every request."""

    async def script(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, parts)

    return script


def good_parts(n_tok: int, pause_s: float = 0.0, first: int = 7) -> list[bytes | float]:
    parts: list[bytes | float] = []
    for n in range(n_tok):
        parts += [pause_s, chunk(first + n)]
    return [*parts, usage(n_tok, prompt_tokens_details={"cached_tokens": 2}), DONE]


def dripping(pause_s: float) -> list[bytes | float]:
    """A first token, then comments for a long time."""
    parts: list[bytes | float] = [chunk(7)]
    for _ in range(1000):
        parts += [pause_s, b": ping\n\n"]
    return parts


async def obedient(peer: Peer, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """As many tokens as asked, at once."""
    return await stream(request, good_parts(body["max_tokens"]))


def session(name: str, turns: Sequence[tuple[int, int, float]], start_s: float = 0.0, seed: int = 0) -> Session:
    made = tuple(Turn(*turn) for turn in turns)
    longest = max(t.prompt_tok + t.output_tok for t in made)
    ids = np.random.default_rng(seed).integers(3, 150_000, longest).astype(np.int32)
    return Session(name, made, GrowingTokens(ids, made), start_s)


def trace(*sessions: Session) -> Trace:
    return Trace("test", sessions)


def one_turn(output_tok: int = 3) -> Trace:
    return trace(session("a", [(4, output_tok, 0.0)]))
