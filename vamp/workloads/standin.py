"""A seeded stand-in for the paper's 2,103-turn SWE-agent recording, which is not public.

The paper prints 48 sessions, 2,103 turns, and that fewer than twelve sessions remain beyond turn 61; these
hold exactly. Everything else is in `StandinAssumptions`. There is one trace: draws are scaled so that totals
do not depend on their luck, and a run's seed moves only the starts of the sessions, as the paper replays
identical requests every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vamp.workloads.assumptions import (
    OUTPUT_MIN_TOK,
    SESSIONS,
    TOOL_MIN_TOK,
    TURNS,
    Floats,
    Ints,
    StandinAssumptions,
    scaled,
    turn_index,
)
from vamp.workloads.trace import FIRST_TOK, VOCAB_TOK, GrowingTokens, Session, Tokens, Trace, Turn

LABEL = "stand-in for the 2,103-turn recording"


def standin(assumed: StandinAssumptions, seed: int, scale: float = 1.0) -> Trace:
    """The trace.

    Args:
        assumed: what is drawn.
        seed: of this run: when each session starts, and in which order. Requests are the same for every seed.
        scale: keeps round(48 * scale) of the sessions as they are, two at least, short and long ones alike.

    Raises:
        ConfigError: the assumptions contradict the printed counts.
    """
    draws = _draw(assumed)
    kept = pick(np.argsort(draws.counts, kind="stable"), max(2, round(SESSIONS * scale)))
    starts, order = _starts(assumed, seed)
    sessions = [_session(assumed, draws, i, starts[order[i]]) for i in kept]
    notes: dict[str, int | float | str] = {"declared_mean_prompt_tok": round(assumed.mean_prompt_tok, 1)}
    return Trace(LABEL, tuple(sorted(sessions, key=lambda s: s.start_s)), stand_in=True, notes=notes)


def pick(ranked: Sequence[int] | Ints, keep: int) -> list[int]:
    """`keep` of the entries, evenly spaced, in their order."""
    return [int(ranked[int((i + 0.5) * len(ranked) / keep)]) for i in range(keep)]


@dataclass(frozen=True, slots=True)
class _Draws:
    """What is random in the trace: `counts` and `first_tok` per session, the rest per turn."""

    counts: Ints
    first_tok: Ints
    output_tok: Ints
    tool_tok: Ints
    think_s: Floats


def _draw(assumed: StandinAssumptions) -> _Draws:
    """All draws, scaled: mean first prompt, reply, think time and prompt are the declared ones."""
    rng = np.random.default_rng(assumed.trace_seed)
    counts = rng.permutation(assumed.turn_counts())
    turn, later = turn_index(counts)
    each = np.ones(TURNS)

    first = rng.lognormal(0.0, assumed.first_sd, SESSIONS)
    shortest, total = assumed.shared_tok + 1, SESSIONS * assumed.first_tok
    first = scaled("first_tok", first, shortest, np.inf, np.ones(SESSIONS), total)
    output = rng.lognormal(0.0, assumed.output_sd, TURNS)
    output = scaled("output_tok", output, OUTPUT_MIN_TOK, np.inf, each, TURNS * assumed.output_tok)
    think = rng.lognormal(0.0, assumed.think_sd, TURNS)
    think = scaled("think_s", think, 0.0, np.inf, each, TURNS * assumed.think_s)
    tool = rng.lognormal(0.0, assumed.tool_sd, TURNS) * assumed.tool_mean_tok(turn)
    appended = TURNS * assumed.mean_prompt_tok - float(counts @ first) - float(later @ output)
    tool = scaled("tool_tok", tool, TOOL_MIN_TOK, assumed.tool_max_tok, later, appended)
    return _Draws(counts, _whole(first), _whole(output), _whole(tool), think)


def _whole(tokens: Floats) -> Ints:
    return np.rint(tokens).astype(np.int64)


def _session(assumed: StandinAssumptions, draws: _Draws, index: int, start_s: float) -> Session:
    begin = int(draws.counts[:index].sum())
    own = slice(begin, begin + int(draws.counts[index]))
    output, appended = draws.output_tok[own], draws.output_tok[own] + draws.tool_tok[own]
    prompt = draws.first_tok[index] + np.concatenate([[0], np.cumsum(appended[:-1])])
    think = np.concatenate([[0.0], draws.think_s[own][:-1]])
    turns = tuple(Turn(int(p), int(o), float(t)) for p, o, t in zip(prompt, output, think, strict=True))
    ids = _ids(assumed, index, turns[-1].prompt_tok + turns[-1].output_tok)
    return Session(f"s{index:02d}", turns, GrowingTokens(ids, turns), start_s)


def _ids(assumed: StandinAssumptions, index: int, n_tok: int) -> Tokens:
    """Random ids of one session; the first `shared_tok` are everybody's."""
    own, shared = (np.random.default_rng([assumed.trace_seed, stream]) for stream in (index, SESSIONS))
    ids = own.integers(FIRST_TOK, VOCAB_TOK, n_tok, dtype=np.int32)
    ids[: assumed.shared_tok] = shared.integers(FIRST_TOK, VOCAB_TOK, assumed.shared_tok, dtype=np.int32)
    return ids


def _starts(assumed: StandinAssumptions, seed: int) -> tuple[list[float], list[int]]:
    """Start times, and which of them each session gets."""
    rng = np.random.default_rng(seed)
    starts = rng.uniform(0.0, assumed.start_span_s, SESSIONS)
    return [float(s) for s in starts], [int(i) for i in rng.permutation(SESSIONS)]
