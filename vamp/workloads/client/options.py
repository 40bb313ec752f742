"""How to talk to the server and what to do when a request fails."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from yarl import URL

from vamp.errors import ConfigError
from vamp.workloads.client.sse import MAX_LINE_BYTES
from vamp.workloads.trace import FIRST_TOK


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Settings of a replay.

    Attributes:
        base_url: of the server, with or without a final `/v1`.
        model: name to ask for; None: the first of `GET /v1/models`.
        return_token_ids: ask for token ids, a vLLM extension; None: if `/v1/models` says that vLLM serves the model.
        concurrency: sessions alive at once; None: all.
        request_timeout_s: from sending a request to the end of its stream.
        max_run_s: stop the run after this long; None: when every session ended.
        go_on_after_failure: send the next turn of a session although one failed. By default the session ends.
        carry_replies: where a prompt holds the recorded reply of an earlier turn, put the server's own reply in its
            place, so that the server finds it in its prefix cache. Needs token ids. By default prompts are as recorded.
        vocab_tok: fold prompt ids into [FIRST_TOK, vocab_tok), for models with a vocabulary smaller than the trace's.
            Equal prefixes stay equal.
        max_line_bytes: longest line of an event stream.
        api_key: sent as bearer token if not empty.

    Raises: ConfigError for a value out of range.
    """

    base_url: str
    model: str | None = None
    return_token_ids: bool | None = None
    concurrency: int | None = None
    request_timeout_s: float = 1800.0
    max_run_s: float | None = None
    go_on_after_failure: bool = False
    carry_replies: bool = False
    vocab_tok: int | None = None
    max_line_bytes: int = MAX_LINE_BYTES
    api_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        root_url(self.base_url)
        _at_least("concurrency", self.concurrency, 1)
        _at_least("vocab_tok", self.vocab_tok, FIRST_TOK + 1)
        _at_least("max_line_bytes", self.max_line_bytes, 1)
        for name in ("request_timeout_s", "max_run_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} is {value}, it must be above 0 and finite; give seconds")
        if self.carry_replies and self.return_token_ids is False:
            raise ConfigError("carry_replies needs token ids but return_token_ids is False; drop one of them")

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def root_url(base_url: str) -> URL:
    """The server's root, without a final `/v1`. Raises: ConfigError if it is no http(s) address."""
    try:
        url = URL(base_url.strip().rstrip("/").removesuffix("/v1"))
    except ValueError as error:
        raise ConfigError(f"base_url {base_url!r} is no URL ({error}); write http://HOST:PORT") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"base_url {base_url!r} is no http address; write http://HOST:PORT")
    return url


def _at_least(name: str, value: int | None, minimum: int) -> None:
    if value is not None and value < minimum:
        raise ConfigError(f"{name} is {value}, the minimum is {minimum}; give a larger number or leave it out")
