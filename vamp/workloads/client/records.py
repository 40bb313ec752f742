"""What a replay against a live server leaves behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pandas as pd

from vamp.measure.records import RequestRecord, RunResult

UNFINISHED = "unfinished"
"""Error of a request that is under way; every end replaces it."""


@dataclass(slots=True)
class ClientTurn:
    """One request: its record on the client's clock, and what a record has no column for.

    The client cannot see when the scheduler received a request. Where the server reports its own queue time,
    `record.queued_s` is put at `arrival_s`, so that scheduled_s - queued_s is that queue time; otherwise both are None.

    Attributes:
        itl_s: intervals between tokens, n - 1 for n tokens; 0 for tokens that came in one chunk. Their mean is TPOT.
            One interval per chunk if the server sends no token ids.
        token_ids: the server's reply; empty if it sends no token ids.
        cached_tok_known: the server reported cached tokens. If not, `record.cached_tok` is 0 and means nothing: take
            the hit rate from the server's counters (`Delta.hit_rate_pct`), or start vLLM with
            `--enable-prompt-tokens-details`.
    """

    record: RequestRecord
    itl_s: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    cached_tok_known: bool = False


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A replay, complete or cut short.

    Attributes:
        turns: every request that was sent, in order of arrival.
        unsent_turns: turns of the trace that were never sent: their session failed, or the run stopped.
        wall_s: length of the run.
        began_unix_s: wall-clock time of the run's second 0.
        stopped: "" when every session ended; otherwise why not.
    """

    turns: tuple[ClientTurn, ...]
    unsent_turns: int
    wall_s: float
    began_unix_s: float
    stopped: str = ""

    @property
    def requests(self) -> list[RequestRecord]:
        return [turn.record for turn in self.turns]

    @property
    def frame(self) -> pd.DataFrame:
        """The requests as `RunResult.requests` has them."""
        return RunResult.requests_frame(self.requests)

    @property
    def failures(self) -> Counter[str]:
        """Failed requests by reason."""
        return Counter(record.error for record in self.requests if record.error)

    @property
    def cached_tok_known(self) -> bool:
        """The server reported cached tokens for every request that finished, of which there is one at least."""
        finished = [turn for turn in self.turns if not turn.record.error]
        return bool(finished) and all(turn.cached_tok_known for turn in finished)
