from __future__ import annotations

import json
from typing import Any

import pytest

from vamp.errors import RunError
from vamp.workloads.client.reply import Reply, error_text
from vamp.workloads.client.sse import SseEvent


def choice(text: str | None = "x", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, **more}]}


def reply_of(asked_tok: int, *bodies: dict[str, Any]) -> Reply:
    reply = Reply(asked_tok)
    for second, body in enumerate(bodies, start=1):
        reply.add(SseEvent(json.dumps(body)), float(second * second))
    return reply


def test_three_tokens_have_two_intervals_and_the_first_is_none_of_them() -> None:
    reply = reply_of(3, *(choice(token_ids=[n]) for n in (5, 6, 7)))
    reply.check()
    assert (reply.token_s, reply.token_ids, reply.itl_s) == ([1.0, 4.0, 9.0], [5, 6, 7], [3.0, 5.0])


def test_one_token_has_no_interval() -> None:
    assert reply_of(1, choice(token_ids=[5])).itl_s == []


def test_tokens_of_one_chunk_came_together() -> None:
    reply = reply_of(3, choice(token_ids=[5]), choice(token_ids=[6, 7]))
    reply.check()
    assert reply.itl_s == [3.0, 0.0]


def test_token_without_text_counts() -> None:
    """Half of a character: the server holds the text back, the token came all the same."""
    reply = reply_of(2, choice("", token_ids=[5]), choice("é", token_ids=[6]))
    reply.check()
    assert reply.token_s[0] == 1.0


def test_chunk_without_token_is_no_first_token() -> None:
    reply = reply_of(1, choice("", token_ids=[]), choice("x", token_ids=[6]), choice("", token_ids=[]))
    reply.check()
    assert reply.token_s == [4.0]
    assert reply_of(1, choice(""), choice("x")).token_s == [4.0]


def test_without_ids_usage_counts() -> None:
    reply = reply_of(4, choice("ab"), choice("cd"), {"choices": [], "usage": {"completion_tokens": 4}})
    reply.check()
    assert (reply.n_tok, reply.itl_s) == (4, [3.0])
    with pytest.raises(RunError, match="returned 2 tokens, 4 asked"):
        reply_of(4, choice("ab"), choice("cd")).check()


def test_cached_tokens_and_queue_time() -> None:
    usage = {"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
    reply = reply_of(1, choice(token_ids=[1]), {"choices": [], "usage": usage, "metrics": {"queue_time_ms": 250.0}})
    assert (reply.cached_tok, reply.queue_s) == (0, 0.25)
    silent = reply_of(1, choice(token_ids=[1]), {"choices": [], "usage": {**usage, "prompt_tokens_details": None}})
    assert (silent.cached_tok, silent.queue_s) == (None, None)


def test_fewer_tokens_than_asked() -> None:
    with pytest.raises(RunError, match="returned 2 tokens, 3 asked"):
        reply_of(3, choice(token_ids=[1]), choice(token_ids=[2])).check()


def test_more_tokens_than_asked_stop_the_stream() -> None:
    with pytest.raises(RunError, match="returned 2 tokens or more, 1 asked"):
        reply_of(1, choice(token_ids=[1]), choice(token_ids=[2]))


def test_usage_contradicts_ids() -> None:
    with pytest.raises(RunError, match="1 token ids came, usage counts 5"):
        reply_of(1, choice(token_ids=[1]), {"usage": {"completion_tokens": 5}}).check()


def test_empty() -> None:
    with pytest.raises(RunError, match=r"empty stream: no token came$"):
        reply_of(1).check()
    with pytest.raises(RunError, match="empty stream: no token came, although usage counts 1"):
        reply_of(1, {"choices": [], "usage": {"completion_tokens": 1}}).check()


def test_after_the_end_mark_nothing_counts() -> None:
    reply = reply_of(1, choice(token_ids=[1]))
    reply.add(SseEvent("[DONE]"), 2.0)
    reply.add(SseEvent("rubbish"), 3.0)
    assert reply.done and reply.n_tok == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no room", "code": 400}},
        {"error": "no room"},
        {"object": "error", "message": "no room"},
        {"choices": [{"text": "x"}], "error": {"message": "no\n room"}},
    ],
)
def test_error_object(body: dict[str, Any]) -> None:
    with pytest.raises(RunError, match=r"^error in the stream: no room$"):
        reply_of(1, body)


def test_error_event() -> None:
    with pytest.raises(RunError, match="error in the stream: no room"):
        Reply(1).add(SseEvent('{"message": "no room"}', "error"), 0.0)


@pytest.mark.parametrize(
    "data",
    [
        "{",
        '{"choices": [{"text"',
        "[]",
        "1",
        "",
        "nonsense",
        "[" * 100_000,
        '{"choices": {"a": 1}}',
        '{"choices": ["x"]}',
        '{"choices": [{"token_ids": "x"}]}',
        '{"choices": [{"token_ids": [true]}]}',
        '{"choices": [{"token_ids": [1.5]}]}',
    ],
)
def test_malformed(data: str) -> None:
    with pytest.raises(RunError, match="malformed event") as caught:
        Reply(1).add(SseEvent(data), 0.0)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_null_where_an_object_is_usual() -> None:
    reply = reply_of(1, {"choices": None, "usage": None}, choice(None), choice("x", token_ids=None))
    assert reply.n_tok == 1


def test_error_text_is_one_short_line() -> None:
    assert error_text("a\n\n b " + "x" * 1000) == "a b " + "x" * 196
