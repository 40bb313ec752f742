"""One request: sent, streamed, timed. Whatever goes wrong ends up as its error, never as a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp

from vamp.errors import RunError
from vamp.workloads.client.options import ClientOptions, root_url
from vamp.workloads.client.records import ClientTurn
from vamp.workloads.client.reply import Reply, error_text
from vamp.workloads.client.server import Served
from vamp.workloads.client.sse import SseSplitter

ERROR_BODY_BYTES = 4096


class Sender:
    """Sends completions and fills in their records.

    Args:
        clock: seconds since the run began.
    """

    def __init__(
        self, http: aiohttp.ClientSession, options: ClientOptions, served: Served, clock: Callable[[], float]
    ) -> None:
        self._http, self._options, self._served, self._clock = http, options, served, clock
        self._url = root_url(options.base_url) / "v1" / "completions"
        # An encoded answer would be held back until the coder has a block.
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **options.headers}

    def body(self, prompt: list[int], output_tok: int) -> bytes:
        """The request as JSON. Made before the clock starts: a long prompt takes milliseconds."""
        request: dict[str, Any] = {
            "model": self._served.model,
            "prompt": prompt,
            "max_tokens": output_tok,
            "min_tokens": output_tok,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._served.return_token_ids:
            request["return_token_ids"] = True
        return json.dumps(request, separators=(",", ":")).encode()

    async def send(self, turn: ClientTurn, body: bytes) -> None:
        """Send, and write times, cached tokens or the error into `turn`. If cancelled, the connection is closed and the
        record stays unfinished."""
        record, reply = turn.record, Reply(turn.record.output_tok)
        try:
            record.error = await self._failure(body, reply)
        finally:
            record.first_token_s = reply.token_s[0] if reply.token_s else None
            turn.itl_s, turn.token_ids = reply.itl_s, reply.token_ids
            turn.cached_tok_known = reply.cached_tok is not None
            record.cached_tok = reply.cached_tok or 0
            if reply.queue_s is not None:
                record.queued_s, record.scheduled_s = record.arrival_s, record.arrival_s + reply.queue_s
        if not record.error:
            # The last token, not the end of the stream: the server's own TPOT ends there.
            record.finish_s = reply.token_s[-1]

    async def _failure(self, body: bytes, reply: Reply) -> str:
        """Why the request failed; "" if it did not."""
        limit_s = self._options.request_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._stream(body, reply)
            reply.check()
            if self._options.carry_replies and not reply.token_ids:
                return "no token ids came, carry_replies needs them"
        except RunError as error:
            return str(error)
        except TimeoutError:
            return f"timeout: {len(reply.token_s)} of {reply.asked_tok} tokens within {limit_s:g} s"
        except aiohttp.ClientConnectorError as error:
            return f"connection failed: {error_text(error)}"
        except (aiohttp.ClientError, OSError) as error:
            why = error_text(error) or type(error).__name__
            return f"connection lost after {len(reply.token_s)} of {reply.asked_tok} tokens: {why}"
        return ""

    async def _stream(self, body: bytes, reply: Reply) -> None:
        splitter = SseSplitter(self._options.max_line_bytes)
        # A redirect would turn the POST into a GET; it is reported as what it is.
        async with self._http.post(self._url, data=body, headers=self._headers, allow_redirects=False) as response:
            if response.status != 200:
                text = await _body_text(response) or response.reason or "no text"
                raise RunError(f"HTTP {response.status}: {text}")
            async for chunk in response.content.iter_any():
                now_s = self._clock()
                for event in splitter.feed(chunk):
                    reply.add(event, now_s)
                if reply.done:
                    return
            for event in splitter.close():
                reply.add(event, self._clock())
            if not reply.token_s and response.content_type != "text/event-stream":
                raise RunError(f"empty stream: the answer is {response.content_type}, not an event stream")


async def _body_text(response: aiohttp.ClientResponse) -> str:
    """The beginning of an error's body; OpenAI's message if it is one."""
    raw = b""
    while len(raw) < ERROR_BODY_BYTES and (part := await response.content.read(ERROR_BODY_BYTES - len(raw))):
        raw += part
    try:
        return error_text(json.loads(raw))
    except (ValueError, RecursionError):
        return error_text(raw.decode("utf-8", errors="replace"))
