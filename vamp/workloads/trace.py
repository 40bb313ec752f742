"""What every workload becomes: sessions of turns over token ids, with prefix identity kept.

A loader or generator builds a `Trace`; engines read nothing else. Token ids are held once per session and cut
lazily (`TokenSource`), so that a session of 60 turns costs its final length, not the sum of its prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]
VOCAB_TOK = 151_936  # Qwen3-Next's vocabulary; made-up ids stay inside [FIRST_TOK, VOCAB_TOK)
FIRST_TOK = 3


class TokenSource(Protocol):
    """Token ids of one session."""

    def prompt(self, turn: int) -> Tokens:
        """Prompt of that turn, shape (prompt_tok,)."""
        ...

    def output(self, turn: int) -> Tokens:
        """Recorded reply of that turn, shape (output_tok,): what the engine is made to generate."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session.

    Attributes:
        prompt_tok: prompt length, tokens; at least 1.
        output_tok: reply length, tokens; at least 1.
        think_s: seconds from the previous turn's completion (turn 0: the session's start) to this request.
    """

    prompt_tok: int
    output_tok: int
    think_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Session:
    """Turns of one conversation, issued in order, each after the previous one completed.

    Attributes:
        start_s: seconds after the start of the run at which the session appears.
    """

    session_id: str
    turns: tuple[Turn, ...]
    tokens: TokenSource
    start_s: float = 0.0

    @property
    def max_tok(self) -> int:
        """Longest prompt plus reply: what must fit in the pool at once."""
        return max(t.prompt_tok + t.output_tok for t in self.turns)


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload. `label` goes into tables and titles; `stand_in` says that nobody recorded it."""

    label: str
    sessions: tuple[Session, ...]
    stand_in: bool = False
    notes: dict[str, int | float | str] = field(default_factory=dict)  # e.g. lines skipped, timestamps sorted

    @property
    def n_turns(self) -> int:
        return sum(len(s.turns) for s in self.sessions)

    @property
    def max_tok(self) -> int:
        return max(s.max_tok for s in self.sessions)

    def limited(self, turns: int | None) -> Trace:
        """Of every session the first so many turns; None keeps all. The label says so if it matters."""
        if turns is None or all(len(s.turns) <= turns for s in self.sessions):
            return self
        sessions = tuple(replace(s, turns=s.turns[:turns]) for s in self.sessions)
        return replace(self, label=f"{self.label}, first {turns} turns of each session", sessions=sessions)

    def repeated(self, copies: int) -> Trace:
        """The same sessions `copies` times; copies share no prefix (ids are shifted by a per-copy salt)."""
        out: list[Session] = []
        for copy in range(copies):
            for s in self.sessions:
                salted = replace(s, session_id=f"{s.session_id}~{copy}", tokens=Salted(s.tokens, copy))
                out.append(salted if copy else s)
        return replace(self, sessions=tuple(out), notes={**self.notes, "copies": copies})


@dataclass(frozen=True, slots=True)
class GrowingTokens:
    """A session in which every prompt extends the previous prompt and reply: one array, cut at turns."""

    ids: Tokens
    turns: tuple[Turn, ...]

    def prompt(self, turn: int) -> Tokens:
        return self.ids[: self.turns[turn].prompt_tok]

    def output(self, turn: int) -> Tokens:
        t = self.turns[turn]
        return self.ids[t.prompt_tok : t.prompt_tok + t.output_tok]


@dataclass(frozen=True, slots=True)
class SeparateTokens:
    """A session whose prompts are recorded one by one and need not extend each other."""

    prompts: Sequence[Tokens]
    outputs: Sequence[Tokens]

    def prompt(self, turn: int) -> Tokens:
        return self.prompts[turn]

    def output(self, turn: int) -> Tokens:
        return self.outputs[turn]


@dataclass(frozen=True, slots=True)
class Salted:
    """Another session's tokens, shifted by a per-copy offset: same shape, nothing shared with it."""

    base: TokenSource
    salt: int

    def _shift(self, ids: Tokens) -> Tokens:
        span = VOCAB_TOK - FIRST_TOK
        return ((ids.astype(np.int64) - FIRST_TOK + self.salt * 7919) % span + FIRST_TOK).astype(np.int32)

    def prompt(self, turn: int) -> Tokens:
        return self._shift(self.base.prompt(turn))

    def output(self, turn: int) -> Tokens:
        return self._shift(self.base.output(turn))
