"""One streamed completion, event by event: when its tokens came, which they were, what the server counted."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from vamp.errors import RunError
from vamp.workloads.client.sse import SseEvent

SHOWN_CHARS = 200
"""How much of a server's text goes into an error."""


class Reply:
    """Reads the events of a `/v1/completions` stream with one choice.

    Tokens are counted by `token_ids` where the server sends them. Otherwise by `usage.completion_tokens`, and a chunk
    with text is one arrival, however many tokens it holds; a token whose text is held back (half of a character) is
    then not seen, and a reply without any text is a failure. Without usage too, chunks with text are the count.

    Args:
        asked_tok: tokens that the request asked for; the reply must have exactly as many.

    Attributes:
        token_s: when each token (see above: or chunk) came. Tokens of one chunk came at the same time.
        token_ids: of the reply; empty if the server sends none.
        cached_tok: `usage.prompt_tokens_details.cached_tokens`; None if the server does not say (vLLM says with
            `--enable-prompt-tokens-details`).
        queue_s: `metrics.queue_time_ms` as seconds; None if the server does not say (vLLM says with
            `--enable-per-request-metrics`).
        done: the end mark `[DONE]` came.
    """

    def __init__(self, asked_tok: int) -> None:
        self.asked_tok = asked_tok
        self.token_s: list[float] = []
        self.token_ids: list[int] = []
        self.cached_tok: int | None = None
        self.queue_s: float | None = None
        self.done = False
        self._completion_tok: int | None = None

    @property
    def itl_s(self) -> list[float]:
        """Intervals between tokens: n - 1 for n tokens. The time to the first token is none of them."""
        return [later - earlier for earlier, later in pairwise(self.token_s)]

    @property
    def n_tok(self) -> int:
        if self.token_ids or self._completion_tok is None:
            return len(self.token_s)
        return self._completion_tok

    def add(self, event: SseEvent, at_s: float) -> None:
        """Take one event, received at `at_s`.

        Raises: RunError if it is malformed, is the server's error, or brings more tokens than were asked for.
        """
        if self.done:
            return
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        body = _parsed(event.data)
        if body.get("error") or body.get("object") == "error" or event.event == "error":
            raise RunError(f"error in the stream: {error_text(body)}")
        self._take_usage(body)
        n_new = self._take_tokens(body)
        self.token_s.extend([at_s] * n_new)
        if len(self.token_s) > self.asked_tok:
            raise RunError(f"server returned {len(self.token_s)} tokens or more, {self.asked_tok} asked")

    def check(self) -> None:
        """Raises: RunError unless exactly the tokens that were asked for came."""
        if not self.token_s:
            counted = (
                ""
                if self._completion_tok is None
                else f", although usage counts {self._completion_tok}; ask for token ids"
            )
            raise RunError(f"empty stream: no token came{counted}")
        if self.token_ids and self._completion_tok not in (None, len(self.token_ids)):
            raise RunError(f"{len(self.token_ids)} token ids came, usage counts {self._completion_tok} tokens")
        if self.n_tok != self.asked_tok:
            raise RunError(f"server returned {self.n_tok} tokens, {self.asked_tok} asked")

    def _take_tokens(self, body: dict[str, Any]) -> int:
        choices = body.get("choices")
        if not choices:
            return 0
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise _malformed(str(body))
        ids = choice.get("token_ids")
        if ids is None:
            return 1 if choice.get("text") else 0
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise _malformed(str(body))
        self.token_ids += ids
        return len(ids)

    def _take_usage(self, body: dict[str, Any]) -> None:
        usage = _object(body, "usage")
        count = usage.get("completion_tokens")
        self._completion_tok = count if type(count) is int else self._completion_tok
        cached = _object(usage, "prompt_tokens_details").get("cached_tokens")
        self.cached_tok = cached if type(cached) is int else self.cached_tok
        queue_ms = _object(body, "metrics").get("queue_time_ms")
        self.queue_s = queue_ms / 1e3 if isinstance(queue_ms, int | float) else self.queue_s


def error_text(body: Any) -> str:
    """The message of an OpenAI error body, or the body itself, in one short line."""
    if isinstance(body, dict):
        inner = body.get("error") or body
        body = inner.get("message") or inner if isinstance(inner, dict) else inner
    return " ".join(str(body).split())[:SHOWN_CHARS]


def _object(body: dict[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _parsed(data: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise _malformed(data) from None
    if not isinstance(body, dict):
        raise _malformed(data)
    return body


def _malformed(data: str) -> RunError:
    return RunError(f"malformed event in the stream: {error_text(data)!r}")
