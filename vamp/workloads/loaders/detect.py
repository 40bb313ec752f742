"""Which kind of recording a file is, by its content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from vamp.workloads.loaders.reading import head

Kind = Literal["lmcache", "swe_agent", "mooncake", "bailian", "azure"]

# Inside JSON text a quote is always escaped, so this finds names of fields only. It works on part of a line,
# too: a damaged line must still be recognised, so that its loader refuses it instead of nobody reading it.
_FIELD = re.compile(r'"(\w+)"\s*:')


def detect(path: Path) -> Kind | None:
    """The kind, or None for anything else.

    Raises:
        TraceError: the file cannot be opened.
    """
    text = head(path).lstrip()
    if "ContextTokens" in text.partition("\n")[0]:
        return "azure"
    if not text.startswith("{"):
        return None
    names = set(_FIELD.findall(text))
    if "history" in names or "trajectory" in names or {"messages", "role"} <= names:
        return "swe_agent"
    if "hash_ids" in names or "input_length" in names:
        return "bailian" if names & {"chat_id", "parent_chat_id"} else "mooncake"
    if "input" in names and names & {"timestamp", "session_id"}:
        return "lmcache"
    return None
