"""Mooncake request traces (FAST'25): one JSON line per request, prompts as hashes of 512-token blocks.

The files name no sessions. They are inferred: a request continues the session whose last prompt it extends.
In the public conversation trace such a prompt is, in the median, 26 tokens longer than the last prompt and
its reply together.
"""

from __future__ import annotations

from vamp.workloads.loaders.blocks import Request, checked_blocks, count_unordered, sessions_of
from vamp.workloads.loaders.reading import BlockId, LengthTok, Line, Loaded, Source, Timestamp, records

BLOCK_TOK = 512
MIN_SHARED_BLK = 2
"""Full blocks that a prompt must have before another can count as its continuation. One proves nothing: all
12,031 requests of the public conversation trace begin with the same block."""


class MooncakeLine(Line):
    timestamp: Timestamp  # ms
    input_length: LengthTok
    output_length: LengthTok
    hash_ids: list[BlockId]


def load(source: Source) -> Loaded:
    """All requests of a file as sessions, in order of their start."""
    requests = []
    for number, r in records(source, MooncakeLine):
        blocks = checked_blocks(source, number, r.hash_ids, r.input_length, BLOCK_TOK)
        requests.append(Request(r.timestamp / 1e3, r.input_length, r.output_length, blocks))
    counts = count_unordered(r.time_s for r in requests)
    chains = infer_sessions(sorted(requests, key=lambda r: r.time_s))
    return Loaded(sessions_of(source, chains, BLOCK_TOK), counts)


def infer_sessions(requests: list[Request]) -> list[list[Request]]:
    """Chains of requests, each of which extends the one before it.

    A request continues the session whose last request's full blocks are the longest prefix of its own blocks;
    among equals the most recent. A session that was continued is found under its new last request only.
    """
    chains: list[list[Request]] = []
    ends: dict[bytes, int] = {}  # full blocks of a session's last request -> the session
    for request in requests:
        full = request.blocks[: request.prompt_tok // BLOCK_TOK]
        keys = (full[:n].tobytes() for n in range(len(full), MIN_SHARED_BLK - 1, -1))
        chain = next((ends.pop(key) for key in keys if key in ends), None)
        if chain is None:
            chain = len(chains)
            chains.append([])
        chains[chain].append(request)
        if len(full) >= MIN_SHARED_BLK:
            ends[full.tobytes()] = chain
    return chains
