"""SWE-agent trajectories (.traj, and mini-swe-agent's): one JSON document per session with its chat messages.

Each assistant message is one turn. Its prompt is all messages before it, rendered as ChatML; its reply is its
own text with its tool calls. Every rendered piece starts on a token boundary, so each prompt extends the one
before it with its reply, and sessions with equal system messages share them. Two things are not modelled:
history processors, which shorten old observations in some agents, and time. No request has a timestamp, so
the think time is declared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import AliasChoices, Field, ValidationError

from vamp.workloads.assumptions import StandinAssumptions
from vamp.workloads.loaders.reading import Line, Loaded, Source, explained, read_all
from vamp.workloads.tokens import MAX_TOK, text_tokens
from vamp.workloads.trace import GrowingTokens, Session, Tokens, Turn

THINK_S = StandinAssumptions().think_s
"""ASSUMPTION: seconds between a reply and the next request, the mean that the stand-in trace assumes. (Where
tool run times are recorded, they are 0.1 to 2 s; they leave out everything around the tool.)"""


class Message(Line):
    role: str
    content: Any = None
    tool_calls: list[Any] | None = None


class Trajectory(Line):
    history: list[Message] = Field(validation_alias=AliasChoices("history", "messages"))


def load(source: Source) -> Loaded:
    """The one session of a file."""
    try:
        trajectory = Trajectory.model_validate_json(read_all(source))
    except ValidationError as err:
        raise explained(source, err, None) from None
    counts: Counter[str] = Counter(empty_outputs=0, parts_skipped=0)
    pieces: list[Tokens] = []
    turns: list[Turn] = []
    n_tok = 0
    for ids, is_reply in _pieces(source, trajectory.history, counts):
        if is_reply and len(turns) == source.limit:
            break
        if is_reply:
            turns.append(Turn(n_tok, len(ids), THINK_S if turns else 0.0))
        pieces.append(ids)
        n_tok += len(ids)
        if n_tok > MAX_TOK:
            raise source.error(f"more than {MAX_TOK} tokens; no model takes such a prompt", field="history")
    if not turns:
        raise source.error("no assistant message, so no turn; a session needs one", field="history")
    tokens = GrowingTokens(np.concatenate(pieces), tuple(turns))
    return Loaded([Session(source.name, tuple(turns), tokens)], counts)


def _pieces(source: Source, history: list[Message], counts: Counter[str]) -> Iterator[tuple[Tokens, bool]]:
    """Token ids of the rendered conversation, piece by piece, and whether a piece is a reply."""
    for number, message in enumerate(history):
        text = _text(source, message, number, counts)
        if message.role == "assistant":
            reply = text + "".join(json.dumps(call, sort_keys=True) for call in message.tool_calls or ())
            counts["empty_outputs"] += not reply
            yield text_tokens(b"<|im_start|>assistant\n"), False
            yield text_tokens(reply.encode()), True
            yield text_tokens(b"<|im_end|>\n"), False
        else:
            yield text_tokens(f"<|im_start|>{message.role}\n{text}<|im_end|>\n".encode()), False


def _text(source: Source, message: Message, number: int, counts: Counter[str]) -> str:
    """A message's text; of a list of parts those of type "text", others are counted in `parts_skipped`."""
    field = f"history.{number}.content"
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    if not isinstance(message.content, list) or not all(isinstance(part, dict) for part in message.content):
        raise source.error("content must be text or a list of parts", field=field)
    texts = []
    for part in message.content:
        if part.get("type") != "text":
            counts["parts_skipped"] += 1
        elif not isinstance(part.get("text"), str):
            raise source.error("a part of type 'text' needs a text", field=field)
        else:
            texts.append(part["text"])
    return "".join(texts)
