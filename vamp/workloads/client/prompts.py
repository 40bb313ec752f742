"""Prompts of one session as they are sent: recorded, folded into a small vocabulary, or with the server's replies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vamp.workloads.trace import FIRST_TOK, Session, Tokens


def folded(ids: Tokens, vocab_tok: int | None) -> Tokens:
    """Ids inside [FIRST_TOK, vocab_tok): equal ids stay equal, different ones may meet. Unchanged for None."""
    if vocab_tok is None:
        return ids
    return (ids - FIRST_TOK) % (vocab_tok - FIRST_TOK) + FIRST_TOK


class Conversation:
    """One session's prompts. A reply that was heard replaces the recorded one in every later prompt that extends the
    recorded prompt and reply; a prompt that does not (the context was cut) is sent as recorded, and so are all after it
    as far as the replies before it go."""

    def __init__(self, session: Session, vocab_tok: int | None = None) -> None:
        self._tokens, self._turns, self._vocab_tok = session.tokens, session.turns, vocab_tok
        self._heard: list[tuple[int, Tokens]] = []  # turn, the server's reply

    def prompt(self, turn: int) -> list[int]:
        recorded = self._tokens.prompt(turn)
        ids = folded(recorded, self._vocab_tok)
        self._heard = [(n, reply) for n, reply in self._heard if self._extends(recorded, n)]
        if self._heard:
            ids = ids.copy()
        for n, reply in self._heard:
            start = self._turns[n].prompt_tok
            ids[start : start + len(reply)] = reply
        out: list[int] = ids.tolist()
        return out

    def heard(self, turn: int, reply: Sequence[int]) -> None:
        """The server's reply to that turn, as long as the recorded one."""
        self._heard.append((turn, np.asarray(reply, dtype=np.int32)))

    def _extends(self, recorded: Tokens, turn: int) -> bool:
        earlier = np.concatenate([self._tokens.prompt(turn), self._tokens.output(turn)])
        return np.array_equal(recorded[: len(earlier)], earlier)
