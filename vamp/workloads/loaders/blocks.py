"""What Mooncake and Bailian recordings have in common: requests with block hashes, chained to sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vamp.workloads.loaders.reading import Source
from vamp.workloads.sources import BlockTokens
from vamp.workloads.tokens import BlockIds
from vamp.workloads.trace import Session, Turn


@dataclass(frozen=True, slots=True)
class Request:
    """One recorded request.

    Attributes:
        time_s: when it arrived, seconds on the recording's clock.
        blocks: ids of its prompt's blocks, shape (ceil(prompt_tok / block_tok),); the last may be partial.
    """

    time_s: float
    prompt_tok: int
    output_tok: int
    blocks: BlockIds


def checked_blocks(source: Source, line: int, ids: list[int], prompt_tok: int, block_tok: int) -> BlockIds:
    """The ids that cover the prompt.

    Raises:
        TraceError: they are too few.
    """
    need = -(-prompt_tok // block_tok)
    if len(ids) < need:
        held = f"{len(ids)} blocks of {block_tok} tokens cannot hold input_length {prompt_tok}"
        raise source.error(f"{held}; {need} are needed", line=line, field="hash_ids")
    return np.array(ids[:need], dtype=np.int64)


def count_unordered(times_s: Iterable[float]) -> Counter[str]:
    """How many requests stand after a later one in the file."""
    latest, unordered = float("-inf"), 0
    for time_s in times_s:
        unordered += time_s < latest
        latest = max(latest, time_s)
    return Counter(timestamps_sorted=unordered)


def sessions_of(source: Source, chains: list[list[Request]], block_tok: int) -> list[Session]:
    """One session per chain of requests.

    The time of the whole recording starts with its first request. `think_s` is the gap between two requests
    of a
    session: the recordings do not say how long a request was served, so this is an upper bound.
    """
    origin_s = min(chain[0].time_s for chain in chains)
    sessions, serial = [], 0
    for number, chain in enumerate(chains):
        gaps_s = [0.0] + [b.time_s - a.time_s for a, b in pairwise(chain)]
        turns = tuple(Turn(r.prompt_tok, r.output_tok, gap) for r, gap in zip(chain, gaps_s, strict=True))
        tokens = BlockTokens(tuple(r.blocks for r in chain), turns, block_tok, serial, source.salt)
        sessions.append(Session(f"{source.name}#{number}", turns, tokens, chain[0].time_s - origin_s))
        serial += len(chain)
    return sessions
