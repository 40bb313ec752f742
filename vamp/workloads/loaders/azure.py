"""Azure LLM inference traces: CSV of TIMESTAMP, ContextTokens, GeneratedTokens.

Nothing says which requests share a prefix, so every request is a session of one turn with tokens of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from vamp.workloads.loaders.blocks import count_unordered
from vamp.workloads.loaders.reading import LengthTok, Loaded, Source, explained, lines
from vamp.workloads.sources import BlockTokens
from vamp.workloads.tokens import MAX_TOK
from vamp.workloads.trace import Session, Turn

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class AzureRow(BaseModel):
    """Not strict: in CSV everything is text."""

    model_config = ConfigDict(frozen=True)

    TIMESTAMP: datetime
    ContextTokens: LengthTok
    GeneratedTokens: LengthTok


def load(source: Source) -> Loaded:
    """All rows of a file, in order of time."""
    rows = list(_rows(source))
    times_s = [_seconds(row.TIMESTAMP) for row in rows]
    counts = count_unordered(times_s)
    origin_s = min(times_s)
    order = sorted(range(len(rows)), key=times_s.__getitem__)
    return Loaded([_session(source, i, rows[i], times_s[i] - origin_s) for i in order], counts)


def _rows(source: Source) -> Iterator[AzureRow]:
    numbered = lines(source)
    _, header = next(numbered, (0, b""))
    if tuple(header.decode(errors="replace").strip().split(",")) != COLUMNS:
        raise source.error(f"the header must be {','.join(COLUMNS)}", line=1)
    count = 0
    for number, raw in numbered:
        if count == source.limit:
            return
        cells = raw.decode(errors="replace").strip().split(",")
        if len(cells) != len(COLUMNS):
            count_text = f"{len(cells)} fields instead of {len(COLUMNS)}"
            raise source.error(f"{count_text}; malformed or truncated", line=number)
        try:
            yield AzureRow.model_validate(dict(zip(COLUMNS, cells, strict=True)))
        except ValidationError as err:
            raise explained(source, err, number) from None
        count += 1
    if not count:
        raise source.error("there is a header but no row; a trace needs at least one request")


def _session(source: Source, number: int, row: AzureRow, start_s: float) -> Session:
    turn = Turn(row.ContextTokens, row.GeneratedTokens)
    own_block = np.array([number])  # as long as the prompt: nothing shared
    tokens = BlockTokens((own_block,), (turn,), MAX_TOK, number, source.salt)
    return Session(f"{source.name}#{number}", (turn,), tokens, start_s)


def _seconds(time: datetime) -> float:
    """Since the epoch; the files mean UTC, with and without saying so."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
