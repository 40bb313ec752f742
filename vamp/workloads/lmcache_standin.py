"""A seeded stand-in for the paper's LMCache trace, used where no recording is given.

The public LMCache agent sessions are of three kinds. Their counts and means (`FAMILIES`) are reproduced; only what
their turns append is made longer by one factor: as published they hold less than the base pool and never press on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked

from vamp.workloads.assumptions import Floats, checked_overrides
from vamp.workloads.trace import FIRST_TOK, VOCAB_TOK, GrowingTokens, Session, Trace, Turn

FITTED_TO = ("lmcache.128.vllm.ttft_p99", "lmcache.128.vllm.preemptions")
"""The vLLM values that `growth_factor` was chosen by. Every value of VAMP and of 64 sessions is held out."""
TURNS_MIN, TURNS_MAX = 3, 44  # shortest and longest public session
_TURNS_SD = 0.5
_GROWTH_SD = 1.0
_REPLY_MAX_TOK = 12_032  # the longest public reply


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of public session: counts and means over its files, at 4 bytes per token (data/README.md).

    Attributes:
        growth_tok: mean tokens that a prompt has more than the one before it.
        reply_sd, think_sd: standard deviations of the logarithm.
    """

    name: str
    sessions: int
    turns: int
    first_tok: float
    growth_tok: float
    reply_tok: float
    reply_sd: float
    think_s: float
    think_sd: float


FAMILIES = (
    Family("miniswe", 20, 402, 1730, 313, 114, 0.5, 0.51, 0.62),
    Family("magagent", 25, 746, 338, 76, 624, 1.0, 5.8, 1.18),
    Family("taubench", 24, 471, 8, 13, 22, 1.5, 0.23, 0.8),
)


@checked(frozen=True, slots=True, config=ConfigDict(allow_inf_nan=False))
class LmcacheAssumptions:
    """Each value is an assumption and says from what it was chosen."""

    growth_factor: Annotated[float, Field(gt=0, le=100)] = 6.0
    """ASSUMPTION: how many times longer what a turn appends is than in the public files; first prompts are theirs.
    Fitted to the vLLM row at 128 sessions: TTFT p99 and preemptions."""
    trace_seed: Annotated[int, Field(ge=0)] = 0
    """ASSUMPTION: seed of the draws."""


def lmcache_standin(overrides: dict[str, float], sessions: int, seed: int) -> Trace:
    """The trace: requests are the same for every seed, which moves the starts within one second.

    Args:
        sessions: how many; the three kinds keep their public shares.

    Raises:
        ConfigError: an unknown override, or a value out of range.
    """
    assumed = checked_overrides(LmcacheAssumptions, overrides)
    kinds = [family for family in FAMILIES for _ in range(family.sessions)]
    made = [_session(kinds[_spread(i, len(kinds))], i, assumed) for i in range(sessions)]
    starts = np.random.default_rng(seed).uniform(0.0, 1.0, sessions)
    placed = [Session(s.session_id, s.turns, s.tokens, float(start)) for s, start in zip(made, starts, strict=True)]
    label = f"stand-in for the LMCache trace, {sessions} sessions"
    return Trace(label, tuple(placed), stand_in=True, notes={"growth_factor": assumed.growth_factor})


def _spread(i: int, n: int) -> int:
    """0, 1, 2, ... in an order that takes all kinds in their shares from the start; a permutation of range(n)."""
    return i * 29 % n


def _session(kind: Family, index: int, assumed: LmcacheAssumptions) -> Session:
    rng = np.random.default_rng([assumed.trace_seed, index])
    n = int(np.clip(round(_lognormal(rng, kind.turns / kind.sessions, _TURNS_SD, 1)[0]), TURNS_MIN, TURNS_MAX))
    reply = np.clip(np.rint(_lognormal(rng, kind.reply_tok, kind.reply_sd, n)), 1, _REPLY_MAX_TOK).astype(int)
    first = round(kind.first_tok)
    grown = np.rint(_lognormal(rng, kind.growth_tok * assumed.growth_factor, _GROWTH_SD, n)).astype(int)
    grown = np.maximum(grown, reply + 1)  # a prompt holds the reply before it
    prompt = first + np.concatenate([[0], np.cumsum(grown[:-1])])
    think = np.concatenate([[0.0], _lognormal(rng, kind.think_s, kind.think_sd, n)[:-1]])
    turns = tuple(Turn(int(p), int(o), float(t)) for p, o, t in zip(prompt, reply, think, strict=True))
    ids = rng.integers(FIRST_TOK, VOCAB_TOK, turns[-1].prompt_tok + turns[-1].output_tok, dtype=np.int32)
    return Session(f"{kind.name}{index:03d}", turns, GrowingTokens(ids, turns))


def _lognormal(rng: np.random.Generator, mean: float, sd: float, n: int) -> Floats:
    return np.asarray(mean * np.exp(sd * rng.standard_normal(n) - sd * sd / 2), dtype=np.float64)
