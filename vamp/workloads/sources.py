"""Token sources for recordings: prompts that share arrays, and prompts made from block hashes on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vamp.workloads.tokens import (
    BYTES_PER_TOK,
    EMPTY_TOK,
    BlockIds,
    block_tokens,
    full_group_tokens,
    last_group_token,
)
from vamp.workloads.trace import Tokens, Turn


class Cut(NamedTuple):
    """A prompt: the first `n_tok` ids of an array, and perhaps one id that only this prompt ends with."""

    base: int
    n_tok: int
    tail: int | None

    @property
    def prompt_tok(self) -> int:
        return self.n_tok + (self.tail is not None)


@dataclass(frozen=True, slots=True)
class CutTokens:
    """Recorded prompts, each cut from one of a few arrays; replies are kept as they are."""

    bases: tuple[Tokens, ...]
    cuts: tuple[Cut, ...]
    outputs: tuple[Tokens, ...]

    def prompt(self, turn: int) -> Tokens:
        base, n_tok, tail = self.cuts[turn]
        ids = self.bases[base][:n_tok]
        return ids if tail is None else np.append(ids, np.int32(tail))

    def output(self, turn: int) -> Tokens:
        return self.outputs[turn]


class PromptStore:
    """Collects the prompts of one session, in any order: prompts that extend one another share one array."""

    _OPEN = 8  # recent texts that a new prompt is compared with; an agent has few threads of conversation

    def __init__(self) -> None:
        self._open: dict[int, bytes] = {}  # base -> its longest text so far, the last used last
        self._closed: dict[int, Tokens] = {}

    def add(self, text: bytes) -> Cut:
        base = self._base_of(text)
        size = len(text) % BYTES_PER_TOK
        tail = EMPTY_TOK if not text else int(last_group_token(text)) if size else None
        return Cut(base, len(text) // BYTES_PER_TOK, tail)

    def bases(self) -> tuple[Tokens, ...]:
        ids = {base: full_group_tokens(text) for base, text in self._open.items()} | self._closed
        return tuple(ids[base] for base in range(len(ids)))

    def _base_of(self, text: bytes) -> int:
        for base in reversed(self._open):
            longest = self._open[base]
            if text.startswith(longest) or longest.startswith(text):
                self._open[base] = max(self._open.pop(base), text, key=len)
                return base
        base = len(self._open) + len(self._closed)
        self._open[base] = text
        if len(self._open) > self._OPEN:
            oldest = next(iter(self._open))
            self._closed[oldest] = full_group_tokens(self._open.pop(oldest))
        return base


@dataclass(frozen=True, slots=True)
class BlockTokens:
    """Prompts recorded as block hashes. Ids are made when asked for, so that a trace costs its hashes only.

    Replies are not recorded. They get ids of their own, equal to nothing else: that a later prompt repeats a
    reply is visible in its full blocks or not at all.

    Attributes:
        blocks: per turn, block ids, shape (at least ceil(prompt_tok / block_tok),).
        serial: number of the session's first reply among all of the file; distinguishes replies.
        salt: number of the file; hashes of two files are unrelated, even where equal.
    """

    blocks: tuple[BlockIds, ...]
    turns: tuple[Turn, ...]
    block_tok: int
    serial: int
    salt: int

    def prompt(self, turn: int) -> Tokens:
        return block_tokens(self.blocks[turn], self.turns[turn].prompt_tok, self.block_tok, self.salt)

    def output(self, turn: int) -> Tokens:
        n_tok = self.turns[turn].output_tok
        unrecorded = np.array([-1 - self.serial - turn])  # recorded block ids are not negative
        return block_tokens(unrecorded, n_tok, n_tok, self.salt)
