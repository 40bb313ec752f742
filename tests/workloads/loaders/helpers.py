"""Small recordings of every kind, made up."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]

MOONCAKE: Row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
BAILIAN: Row = {
    "chat_id": 1,
    "parent_chat_id": -1,
    "timestamp": 0.5,
    "input_length": 20,
    "output_length": 5,
    "type": "text",
    "turn": 1,
    "hash_ids": [1, 2],
}
LMCACHE: Row = {"timestamp": 1_000_000, "input": "a prompt", "output": "a reply", "session_id": "s"}
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
SWE_AGENT: Row = {
    "history": [
        {"role": "system", "content": "You fix bugs."},
        {"role": "user", "content": "Here is one."},
        {"role": "assistant", "content": "I look.", "tool_calls": None},
        {"role": "tool", "content": "a file"},
        {"role": "assistant", "content": "Done."},
    ]
}
LINE_KINDS = {"mooncake": MOONCAKE, "bailian": BAILIAN, "lmcache": LMCACHE}


def jsonl(*rows: Row) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def samples() -> dict[str, bytes]:
    """A valid file of each kind."""
    lines = {kind: jsonl(row, row) for kind, row in LINE_KINDS.items()}
    return {**lines, "azure": AZURE.encode(), "swe_agent": json.dumps(SWE_AGENT).encode()}


def write(folder: Path, name: str, content: bytes, *, packed: bool = False) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content) if packed else content)
    return file
