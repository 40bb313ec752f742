"""What the stand-in trace assumes: one value per thing that the paper does not print about its recording."""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from scipy.optimize import brentq

from vamp.config import explain
from vamp.errors import ConfigError

SESSIONS = 48
TURNS = 2103
DEEP_SESSIONS = 12  # sessions that have turn 61; fewer have turn 62 (section VI-B)
DEEP_TURNS = 62  # turns 0..61
OUTPUT_MIN_TOK = 8
TOOL_MIN_TOK = 16

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, config=ConfigDict(allow_inf_nan=False))
class StandinAssumptions:
    """Each value is an assumption and says from what it was chosen.

    "The search" is an exploratory parameter search for the regime of Table IV: which values bring 48 closed-loop
    sessions on a 1,288-block pool near the printed latency, queue time and preemptions. It looked at both columns, so
    what comes from it alone is a choice, not a fit; `output_tok` and `think_s` were then fitted to the vLLM column.
    """

    turns_min: Annotated[int, Field(ge=1)] = 15
    """ASSUMPTION: turns of the shortest session. Chosen in the search: the measurement interval ends when the
    first session completes, so this sets how long it lasts."""
    turns_max: Annotated[int, Field(ge=DEEP_TURNS)] = 120
    """ASSUMPTION: turns of the longest session. Chosen so that 48 lengths, twelve above 61, sum to 2,103."""
    turns_sigma: Annotated[float, Field(gt=0, le=3)] = 0.8
    """ASSUMPTION: spread of the lognormal session lengths between these bounds. Chosen in the search."""
    start_span_s: Annotated[float, Field(ge=0)] = 18.0
    """ASSUMPTION: all sessions start within so many seconds. Chosen from turn 0 of Fig. 8, where both systems
    have a median TTFT near 12 s: sessions arrive nearly together, yet not at once."""
    first_tok: Annotated[float, Field(ge=64)] = 16_000.0
    """ASSUMPTION: mean first prompt over the sessions, tokens. Chosen in the search (9,000 gives a baseline
    TTFT p90 of 9.9 s, too weak)."""
    first_sd: Annotated[float, Field(ge=0, le=2)] = 0.35
    """ASSUMPTION: standard deviation of the logarithm of the first prompt. Chosen small: one scaffold."""
    shared_tok: Annotated[int, Field(ge=0)] = 0
    """ASSUMPTION: leading tokens that all sessions share. Chosen from the baseline hit rate, 0.19 %."""
    output_tok: Annotated[float, Field(ge=OUTPUT_MIN_TOK)] = 165.0
    """ASSUMPTION: mean reply over all turns, tokens. Fitted to the vLLM column of Table IV (requests/s, queue
    time and TPOT together) with 28 s of think time."""
    output_sd: Annotated[float, Field(ge=0, le=2)] = 0.5
    """ASSUMPTION: standard deviation of the logarithm of the reply. Chosen between fixed and heavy-tailed."""
    think_s: Annotated[float, Field(ge=0)] = 28.0
    """ASSUMPTION: mean time from a reply to the session\'s next request, seconds. Fitted to the vLLM column of
    Table IV (TTFT p90 26.1 s, 562.7 preemptions per 1,000 turns) with replies of 165 tokens."""
    think_sd: Annotated[float, Field(ge=0, le=3)] = 0.7
    """ASSUMPTION: standard deviation of the logarithm of the think time. Chosen wide: tools differ."""
    tool_tok: Annotated[float, Field(ge=TOOL_MIN_TOK)] = 370.0
    """ASSUMPTION: mean tool result before the next turn, deep in a session, tokens. Chosen in the search
    (x0.5 and x1.5 give a baseline TTFT p90 of 17.1 s and 44.1 s)."""
    tool_early_tok: Annotated[float, Field(ge=0)] = 700.0
    """ASSUMPTION: what tool results have on top at turn 0, tokens. Chosen in the search: files first."""
    tool_tau_turns: Annotated[float, Field(gt=0)] = 8.0
    """ASSUMPTION: turns over which `tool_early_tok` falls to 1/e of itself. Chosen in the search."""
    tool_sd: Annotated[float, Field(ge=0, le=3)] = 1.2
    """ASSUMPTION: standard deviation of the logarithm of a tool result. Chosen heavy-tailed."""
    tool_max_tok: Annotated[int, Field(gt=TOOL_MIN_TOK)] = 12_000
    """ASSUMPTION: longest tool result, tokens. Chosen as an agent's cut of a long file."""
    trace_seed: Annotated[int, Field(ge=0)] = 0
    """ASSUMPTION: seed of the draws. Another one gives another trace with the same totals."""

    def turn_counts(self) -> Ints:
        """Turns of each session, shape (48,): lognormal quantiles, scaled to the printed counts.

        Raises:
            ConfigError: the bounds leave no such lengths.
        """
        rank = np.arange(SESSIONS)
        pivot = SESSIONS - DEEP_SESSIONS  # has turn 61 but not turn 62; whoever ranks above has turn 62
        low = np.where(rank > pivot, DEEP_TURNS + 1, self.turns_min)
        high = np.where(rank > pivot, self.turns_max, DEEP_TURNS)
        low[pivot] = DEEP_TURNS
        if (low > high).any() or not low.sum() <= TURNS <= high.sum():
            raise ConfigError(
                f"turns_min {self.turns_min} and turns_max {self.turns_max} cannot give {TURNS} turns in "
                f"{SESSIONS} sessions, {DEEP_SESSIONS} with at least {DEEP_TURNS}; defaults: 15 and 120"
            )
        quantiles = [NormalDist().inv_cdf((i + 0.5) / SESSIONS) for i in range(SESSIONS)]
        shape = np.exp(self.turns_sigma * np.array(quantiles))
        exact = scaled("turns", shape, low, high, np.ones(SESSIONS), TURNS)
        counts = np.floor(exact).astype(np.int64)
        lost = np.argsort(counts - exact, kind="stable")[: TURNS - int(counts.sum())]
        counts[lost] += 1  # the largest fractions get what rounding down took
        return counts

    def tool_mean_tok(self, turn: Ints) -> Floats:
        """Mean tool result after each of these turns, tokens."""
        return self.tool_tok + self.tool_early_tok * np.exp(-turn / self.tool_tau_turns)

    @property
    def mean_prompt_tok(self) -> float:
        """Mean prompt length over all 2,103 turns that these values declare; the trace meets it."""
        turn, later = turn_index(self.turn_counts())
        return self.first_tok + float(later @ (self.output_tok + self.tool_mean_tok(turn))) / TURNS


def turn_index(counts: Ints) -> tuple[Ints, Floats]:
    """Number of each turn in its session, and how many turns of it follow; both of shape (sum(counts),)."""
    turn = np.concatenate([np.arange(n) for n in counts])
    later = np.concatenate([np.arange(n - 1, -1.0, -1.0) for n in counts])
    return turn, later


_LARGEST_FACTOR = 1e9


def scaled(name: str, draws: Floats, low: npt.ArrayLike, high: npt.ArrayLike, weights: Floats, total: float) -> Floats:
    """`draws` times the one factor that brings their clipped, weighted sum to `total`.

    Raises:
        ConfigError: the bounds do not allow that sum.
    """

    def excess(factor: float) -> float:
        return float(weights @ np.clip(draws * factor, low, high)) - total

    least, most = excess(0.0), excess(_LARGEST_FACTOR)
    if least > 1e-6 * total or most < -1e-6 * total:
        bounds = f"the bounds allow {least + total:.0f} to {most + total:.0f}"
        raise ConfigError(f"{name}: a total of {total:.0f} is needed, {bounds}; relax an override")
    if least >= 0:  # every draw at its lower bound, or no draw wanted
        return np.clip(draws * 0.0, low, high)
    factor: float = brentq(excess, 0.0, _LARGEST_FACTOR)
    return np.clip(draws * factor, low, high)


def assumptions(overrides: dict[str, float]) -> StandinAssumptions:
    """The defaults with some values changed.

    Raises:
        ConfigError: an unknown name (the valid ones are listed) or a value out of range.
    """
    return checked_overrides(StandinAssumptions, overrides)


T = TypeVar("T")


def checked_overrides(kind: type[T], overrides: dict[str, float]) -> T:
    """An object of a pydantic dataclass with all defaults, some values changed.

    Raises:
        ConfigError: an unknown name (the valid ones are listed) or a value out of range.
    """
    known = list(TypeAdapter(kind).json_schema()["properties"])
    if unknown := sorted(set(overrides) - set(known)):
        raise ConfigError(f"unknown override {', '.join(unknown)}; valid names: {', '.join(known)}")
    try:
        return TypeAdapter(kind).validate_python(overrides)
    except ValidationError as err:
        raise ConfigError(explain(err, "overrides")) from None
