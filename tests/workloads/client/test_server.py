from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.workloads.client.peer import obedient, one_turn, serving
from vamp.errors import RunError
from vamp.workloads.client import ClientOptions, replay_async


def sent(models: Any, **settings: Any) -> dict[str, Any]:
    """The body of the first request to a server with these models."""

    async def both() -> dict[str, Any]:
        async with serving(obedient) as peer:
            peer.models = models
            await replay_async(one_turn(), ClientOptions(peer.url + "/v1/", **settings))
            return peer.bodies[0]

    return asyncio.run(both())


def listed(*models: tuple[str, str]) -> dict[str, Any]:
    return {"data": [{"id": name, "owned_by": owner} for name, owner in models]}


def test_first_model_and_ids_only_where_vllm_serves_it() -> None:
    models = listed(("a", "vllm"), ("b", "other"))
    assert (sent(models)["model"], sent(models)["return_token_ids"]) == ("a", True)
    other = sent(models, model="b")
    assert other["model"] == "b" and "return_token_ids" not in other
    assert sent(models, model="b", return_token_ids=True)["return_token_ids"] is True


def test_nothing_is_asked_when_nothing_is_open() -> None:
    assert sent([], model="m", return_token_ids=False)["model"] == "m"


@pytest.mark.parametrize(
    ("models", "settings", "message"),
    [
        (listed(("a", "vllm")), {"model": "b"}, "no model b, the server has: a; name one"),
        ({"data": []}, {}, "no model at all, the server has: none"),
        ({"data": None}, {}, "the server has: none"),
        ([1], {}, "the server has: none"),
        ({"data": [1, {}]}, {}, "the server has: none"),
        (listed(("a", "x")), {"carry_replies": True}, "carry_replies needs token ids and this server is not vLLM"),
    ],
)
def test_refused(models: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        sent(models, **settings)


def test_no_server_and_no_such_page() -> None:
    with pytest.raises(RunError, match=r"no answer .*start the server or correct base_url"):
        asyncio.run(replay_async(one_turn(), ClientOptions("http://127.0.0.1:1")))

    async def other_path() -> None:
        async with serving(obedient) as peer:
            await replay_async(one_turn(), ClientOptions(peer.url + "/elsewhere"))

    with pytest.raises(RunError, match="HTTP 404"):
        asyncio.run(other_path())
