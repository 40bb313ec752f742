"""Qwen-Bailian usage traces: one JSON line per request, prompts as hashes of 16-token blocks."""

from __future__ import annotations

from collections import Counter

from vamp.workloads.loaders.blocks import Request, checked_blocks, count_unordered, sessions_of
from vamp.workloads.loaders.reading import BlockId, LengthTok, Line, Loaded, Source, Timestamp, records

BLOCK_TOK = 16
NO_PARENT = -1


class BailianLine(Line):
    chat_id: int
    parent_chat_id: int = NO_PARENT
    timestamp: Timestamp  # s
    input_length: LengthTok
    output_length: LengthTok
    hash_ids: list[BlockId]


def load(source: Source) -> Loaded:
    """All requests of a file as sessions, in order of their start."""
    requests = []
    for number, r in records(source, BailianLine):
        blocks = checked_blocks(source, number, r.hash_ids, r.input_length, BLOCK_TOK)
        request = Request(r.timestamp, r.input_length, r.output_length, blocks)
        requests.append((r.chat_id, r.parent_chat_id, request))
    counts = count_unordered(r.time_s for _, _, r in requests)
    chains, odd = link(sorted(requests, key=lambda entry: entry[2].time_s))
    counts.update(odd)
    return Loaded(sessions_of(source, chains, BLOCK_TOK), counts)


def link(requests: list[tuple[int, int, Request]]) -> tuple[list[list[Request]], Counter[str]]:
    """Chains of requests by parent, and what did not fit.

    A second answer to the same parent starts a session of its own (`branches`), as does a request whose
    parent is not in the file before it (`parents_missing`): sessions here are chains, not trees.
    """
    chains: list[list[Request]] = []
    session_of: dict[int, int] = {}  # chat_id -> its session
    last: dict[int, int] = {}  # session -> chat_id of its last request
    odd: Counter[str] = Counter(branches=0, parents_missing=0)
    for chat_id, parent, request in requests:
        session = session_of.get(parent) if parent != NO_PARENT else None
        odd["parents_missing"] += parent != NO_PARENT and session is None
        if session is not None and last[session] != parent:
            odd["branches"] += 1
            session = None
        if session is None:
            session = len(chains)
            chains.append([])
        chains[session].append(request)
        session_of[chat_id], last[session] = session, chat_id
    return chains, odd
