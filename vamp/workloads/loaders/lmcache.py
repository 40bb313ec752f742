"""LMCache agent sessions: one file per session, one JSON line per request with its prompt and reply as text.

What the public files (miniswe, magagent, taubench) show, and what follows from it:

* Lines are not in order of time: they are sorted by timestamp, and those after a later one are counted.
* Timestamps are request starts: the gap to the next request grows with the reply before it (correlation 0.57,
  0.89 and 0.80), not with the reply after it. So a gap is service plus think time.
* Only text was recorded. A reply that was a tool call is an empty string in taubench (283 of 471), a prompt
  of a web-surfing step is one in magagent (53 of 746). Each counts as one token and is counted.
* Files were recorded one after another, so the time between two files means nothing: all sessions start at 0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from vamp.workloads.loaders.blocks import count_unordered
from vamp.workloads.loaders.reading import Line, Loaded, Source, Timestamp, records
from vamp.workloads.sources import Cut, CutTokens, PromptStore
from vamp.workloads.tokens import BYTES_PER_TOK, MAX_TOK, text_tokens
from vamp.workloads.trace import Session, Tokens, Turn

RECORDED_S_PER_TOK = 0.006
"""ASSUMPTION: seconds that the recording server took per token (4 bytes) of a reply, at the fastest. The
public files have 1,285 gaps after a reply of 8 tokens or more; the smallest per token is 5.9 to 6.2 ms in
each of the three sets."""


class LmcacheLine(Line):
    timestamp: Timestamp  # microseconds
    input: str
    output: str
    session_id: Annotated[str, Field(min_length=1)]


@dataclass(slots=True)
class _Recording:
    """One session while it is read: a row per request, in the order of the file."""

    prompts: PromptStore = field(default_factory=PromptStore)
    rows: list[tuple[float, Cut, Tokens]] = field(default_factory=list)


def load(source: Source) -> Loaded:
    """The sessions of a file; one, unless lines name several."""
    recordings: dict[str, _Recording] = {}
    counts: Counter[str] = Counter(empty_inputs=0, empty_outputs=0)
    for number, line in records(source, LmcacheLine):
        recording = recordings.setdefault(line.session_id, _Recording())
        cut = recording.prompts.add(_bytes(source, number, "input", line.input))
        reply = text_tokens(_bytes(source, number, "output", line.output))
        recording.rows.append((line.timestamp / 1e6, cut, reply))
        counts["empty_inputs"] += not line.input
        counts["empty_outputs"] += not line.output
    for recording in recordings.values():
        counts.update(count_unordered(row[0] for row in recording.rows))
    single = len(recordings) == 1
    names = {sid: source.name if single else f"{source.name}#{sid}" for sid in recordings}
    return Loaded([_session(names[sid], recording) for sid, recording in recordings.items()], counts)


def _bytes(source: Source, line: int, field: str, text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_TOK * BYTES_PER_TOK:
        tok = len(data) // BYTES_PER_TOK
        raise source.error(f"{tok} tokens of text; the limit is {MAX_TOK}", line=line, field=field)
    return data


def _session(name: str, recording: _Recording) -> Session:
    rows = sorted(recording.rows, key=lambda row: row[0])
    times_s, cuts, outputs = zip(*rows, strict=True)
    thinks_s = [0.0]
    for before, after, reply in zip(times_s, times_s[1:], outputs, strict=False):
        thinks_s.append(think_s(after - before, len(reply)))
    turns = tuple(Turn(c.prompt_tok, len(o), t) for c, o, t in zip(cuts, outputs, thinks_s, strict=True))
    return Session(name, turns, CutTokens(recording.prompts.bases(), cuts, outputs))


def think_s(gap_s: float, reply_tok: int) -> float:
    """The gap between two requests without the least time that the first reply can have taken.

    Still an upper bound: queueing, prefill and slower decoding are not known and stay in.
    """
    return max(0.0, gap_s - RECORDED_S_PER_TOK * reply_tok)
