"""What the server says about itself before the run."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp

from vamp.errors import RunError
from vamp.workloads.client.options import ClientOptions, root_url
from vamp.workloads.client.reply import error_text

ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """The model to ask for, and whether its server knows `return_token_ids`."""

    model: str
    return_token_ids: bool


async def discover(http: aiohttp.ClientSession, options: ClientOptions) -> Served:
    """Fill in what the options leave open from `GET /v1/models`; ask nothing if they leave nothing open.

    Raises: RunError if the server does not answer, serves no model, or `carry_replies` needs ids that it cannot send.
    """
    if options.model is not None and options.return_token_ids is not None:
        return Served(options.model, options.return_token_ids)
    url = root_url(options.base_url) / "v1" / "models"
    listed = await _models(http, str(url), options)
    owners = {str(entry["id"]): entry.get("owned_by") for entry in listed if "id" in entry}
    model = next(iter(owners), None) if options.model is None else options.model
    if model is None or model not in owners:
        names = ", ".join(owners) or "none"
        raise RunError(f"{url}: no model {model or 'at all'}, the server has: {names}; name one that it serves")
    asked = options.return_token_ids
    served = Served(model, owners[model] == "vllm" if asked is None else asked)
    if options.carry_replies and not served.return_token_ids:
        raise RunError(f"{url}: carry_replies needs token ids and this server is not vLLM; leave carry_replies out")
    return served


async def _models(http: aiohttp.ClientSession, url: str, options: ClientOptions) -> list[dict[str, object]]:
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    try:
        async with http.get(url, timeout=timeout, headers=options.headers) as response:
            if response.status != 200:
                text = error_text(await response.content.read(4096))
                raise RunError(f"{url}: HTTP {response.status}: {text}; check base_url and the key")
            body = await response.json(content_type=None)
    except (aiohttp.ClientError, OSError) as error:
        raise RunError(f"{url}: no answer ({error_text(error)}); start the server or correct base_url") from None
    except (ValueError, RecursionError):
        raise RunError(f"{url}: the answer is no JSON; is this an OpenAI-compatible server?") from None
    data = body.get("data") if isinstance(body, dict) else None
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
