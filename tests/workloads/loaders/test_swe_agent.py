from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from vamp.workloads.loaders import load_trace
from vamp.workloads.loaders.swe_agent import THINK_S
from vamp.workloads.tokens import text_tokens
from vamp.workloads.trace import Session, Trace

from .helpers import SWE_AGENT, write


def load(folder: Path, document: dict[str, Any]) -> Trace:
    return load_trace(write(folder, "run.traj", json.dumps(document, indent=2).encode()))


def one(folder: Path, *messages: dict[str, Any]) -> Session:
    return load(folder, {"history": list(messages)}).sessions[0]


def test_each_assistant_message_is_a_turn(tmp_path: Path) -> None:
    session = load(tmp_path, SWE_AGENT).sessions[0]
    assert len(session.turns) == 2
    assert [t.think_s for t in session.turns] == [0.0, THINK_S]
    assert session.tokens.output(0).tolist() == text_tokens(b"I look.").tolist()
    assert session.tokens.output(1).tolist() == text_tokens(b"Done.").tolist()


def test_a_prompt_is_everything_before_it_with_the_reply(tmp_path: Path) -> None:
    session = load(tmp_path, SWE_AGENT).sessions[0]
    rendered = [
        b"<|im_start|>system\nYou fix bugs.<|im_end|>\n",
        b"<|im_start|>user\nHere is one.<|im_end|>\n",
        b"<|im_start|>assistant\n",
    ]
    prompt = np.concatenate([text_tokens(piece) for piece in rendered])
    assert session.tokens.prompt(0).tolist() == prompt.tolist()
    said = np.concatenate([prompt, session.tokens.output(0)])
    assert session.tokens.prompt(1)[: len(said)].tolist() == said.tolist()
    assert session.turns[1].prompt_tok > len(said)


def test_sessions_with_the_same_system_message_share_it(tmp_path: Path) -> None:
    a, b = (
        one(tmp_path, *SWE_AGENT["history"][:1], {"role": "user", "content": task}, SWE_AGENT["history"][4])
        for task in ("one", "two")
    )
    n = len(text_tokens(b"<|im_start|>system\nYou fix bugs.<|im_end|>\n"))
    assert a.tokens.prompt(0)[:n].tolist() == b.tokens.prompt(0)[:n].tolist()
    assert a.tokens.prompt(0).tolist() != b.tokens.prompt(0).tolist()


def test_tool_calls_are_part_of_the_reply(tmp_path: Path) -> None:
    call = {"function": {"name": "bash", "arguments": '{"command": "ls -la /testbed"}'}}
    plain = one(tmp_path, {"role": "assistant", "content": "Look."})
    calling = one(tmp_path, {"role": "assistant", "content": "Look.", "tool_calls": [call]})
    only_calling = one(tmp_path, {"role": "assistant", "content": None, "tool_calls": [call]})
    assert calling.turns[0].output_tok > plain.turns[0].output_tok + 15
    assert only_calling.turns[0].output_tok > 15


def test_content_may_be_parts(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "I "}, {"type": "image_url"}, {"type": "text", "text": "look."}]
    trace = load(tmp_path, {"history": [{"role": "assistant", "content": parts}]})
    assert trace.sessions[0].tokens.output(0).tolist() == text_tokens(b"I look.").tolist()
    assert trace.notes["parts_skipped"] == 1


def test_an_empty_reply_is_one_token_and_counted(tmp_path: Path) -> None:
    trace = load(tmp_path, {"history": [{"role": "assistant", "content": ""}]})
    assert trace.sessions[0].turns[0].output_tok == 1
    assert trace.notes["empty_outputs"] == 1


def test_messages_and_packed_files_are_read_too(tmp_path: Path) -> None:
    content = json.dumps({"messages": SWE_AGENT["history"]}).encode()
    assert load_trace(write(tmp_path, "x", content, packed=True)).n_turns == 2


def test_the_limit_stops_inside_a_session(tmp_path: Path) -> None:
    file = write(tmp_path, "run.traj", json.dumps(SWE_AGENT).encode())
    limited, whole = load_trace(file, limit_turns=1).sessions[0], load_trace(file).sessions[0]
    assert limited.turns == whole.turns[:1]
    assert limited.tokens.output(0).tolist() == whole.tokens.output(0).tolist()
