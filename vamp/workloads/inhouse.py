"""The paper's in-house workload (section VI-C): c sessions of 12 turns, each turn a fixed growth longer."""

from __future__ import annotations

import numpy as np

from vamp.errors import ConfigError
from vamp.workloads.trace import FIRST_TOK, VOCAB_TOK, GrowingTokens, Session, Trace, Turn

TURNS = 12


def inhouse(
    concurrency: int,
    growth_tok: int,
    output_tok: int,
    seed: int,
    scale: float = 1.0,
    *,
    first_tok: int | None = None,
    turns: int = TURNS,
) -> Trace:
    """All sessions start at t = 0, nobody thinks, nothing is shared between sessions.

    Args:
        concurrency: sessions, the paper's c.
        growth_tok: each prompt is so much longer than the one before: its reply, and new tokens.
        output_tok: length of every reply, tokens.
        seed: of the token ids.
        scale: shortens sessions to that part of their turns, two at least (the first is not measured).
        first_tok: length of the first prompt; the paper's is growth_tok, so that turn k has (k + 1) * growth_tok.
        turns: of each session.

    Raises:
        ConfigError: the reply does not fit into one turn's growth.
    """
    if not 1 <= output_tok < growth_tok:
        raise ConfigError(f"output_tok is {output_tok}; it must be 1..{growth_tok - 1}, below growth_tok {growth_tok}")
    n_turns, first = max(2, round(turns * scale)), first_tok or growth_tok
    all_turns = tuple(Turn(prompt_tok=first + k * growth_tok, output_tok=output_tok) for k in range(n_turns))
    shape = (concurrency, all_turns[-1].prompt_tok + output_tok)
    ids = np.random.default_rng(seed).integers(FIRST_TOK, VOCAB_TOK, shape, dtype=np.int32)
    sessions = tuple(Session(f"c{i:03d}", all_turns, GrowingTokens(ids[i], all_turns)) for i in range(concurrency))
    label = f"in-house {n_turns}-turn, c = {concurrency}"
    return Trace(label, sessions, notes={"growth_tok": growth_tok, "output_tok": output_tok})
