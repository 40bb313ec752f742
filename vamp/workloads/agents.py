"""Agents whose next request depends on the previous reply: the closed loop of section VI-B.

Each works on one task. It reads the reply, acts on what it reads (a tool runs for a while and returns text), and asks
again with the longer history; or it submits. What it does is a function of the reply's tokens, so that two systems
whose replies differ lead it along different paths, as the paper's live agents do. Nothing of this is recorded: every
length and time is an assumption of `AgentAssumptions`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from vamp.workloads.assumptions import checked_overrides
from vamp.workloads.trace import FIRST_TOK, VOCAB_TOK, Tokens, Turn

TASKS = 48
REPLY_MIN_TOK = 8
TOOL_MIN_TOK = 16
FITTED_TO = (
    "closed.vllm.preemptions_total",
    "closed.final.vllm.kv_util",
    "closed.final.vllm.waiting",
    "closed.final.vllm.preemptions",
    "closed.final.vllm.ttft_mean",
    "fig6.vllm.preemptions_per_bin",
    "fig6.vllm.ttft_first_bin",
    "fig6.vllm.ttft_mid_run",
)
"""The vLLM values of Fig. 6 that the assumptions below were chosen by. Every value of VAMP is held out."""

Mean = Annotated[float, Field(gt=0)]
Spread = Annotated[float, Field(ge=0, le=3)]


@dataclass(frozen=True, slots=True, config=ConfigDict(allow_inf_nan=False))
class AgentAssumptions:
    """Each value is an assumption and says from what it was chosen. Spreads are of the logarithm.

    "Fitted" is the best of nine settings tried of agents (20, 24, 48), first_tok (16,000, 24,000), reply_tok (300 to
    800) and history_tok (40,000 to 90,000): least sum of absolute log errors of vLLM's waiting requests, preemptions
    and mean TTFT of the last half hour and its mean TTFT of the first. No value of VAMP counted.
    """

    tasks: Annotated[int, Field(ge=1, le=4096)] = TASKS
    """Printed: 48 tasks."""
    agents: Annotated[int, Field(ge=1, le=4096)] = 24
    """ASSUMPTION: tasks worked on at once; when one is done, its agent takes the next. Fitted to the vLLM values of
    Fig. 6."""
    start_span_s: Annotated[float, Field(ge=0)] = 18.0
    """ASSUMPTION: all agents start within so many seconds; as in the stand-in for the recording."""
    first_tok: Mean = 24_000.0
    """ASSUMPTION: mean first prompt, tokens; half as much again as in the stand-in, since the tasks were selected for
    large input contexts. Fitted to the vLLM values of Fig. 6."""
    first_sd: Spread = 0.35
    """ASSUMPTION: spread of the first prompts; as in the stand-in."""
    reply_tok: Mean = 800.0
    """ASSUMPTION: mean reply, tokens. Fitted to the vLLM values of Fig. 6."""
    reply_sd: Spread = 0.5
    """ASSUMPTION: spread of the replies; as in the stand-in."""
    tool_tok: Mean = 700.0
    """ASSUMPTION: mean tool result, tokens; about the mean over the stand-in's turns."""
    tool_sd: Spread = 1.2
    """ASSUMPTION: spread of the tool results; as in the stand-in."""
    tool_max_tok: Annotated[int, Field(gt=TOOL_MIN_TOK)] = 12_000
    """ASSUMPTION: longest tool result, tokens; as in the stand-in."""
    tool_s: Mean = 28.0
    """ASSUMPTION: mean time that a tool runs, seconds; as in the stand-in."""
    tool_s_sd: Spread = 0.7
    """ASSUMPTION: spread of these times; as in the stand-in."""
    history_tok: Annotated[int, Field(ge=64)] = 60_000
    """ASSUMPTION: longest prompt, tokens. A longer history loses the older half of its turns, as agents' history
    processors do; without a bound the regimes of Fig. 6 could not be steady from mid-run on. Fitted to the vLLM values
    of Fig. 6."""
    submit_share: Annotated[float, Field(ge=0, le=1)] = 0.002
    """ASSUMPTION: share of replies after which an agent submits and is done. Chosen small: both of the paper's systems
    leave tasks unfinished at the six-hour cap."""

    @property
    def longest_tok(self) -> int:
        """Bound of prompt plus reply."""
        return max(self.history_tok, self.first_max_tok) + self.reply_max_tok

    @property
    def label(self) -> str:
        return f"{self.tasks} tasks, {self.agents} made-up agents at a time"

    def scaled(self, scale: float) -> AgentAssumptions:
        """That part of the tasks and of the agents, two at least."""
        return replace(self, tasks=_part(self.tasks, scale), agents=_part(self.agents, scale))

    @property
    def first_max_tok(self) -> int:
        return max(1, self.history_tok // 2)

    @property
    def reply_max_tok(self) -> int:
        return max(REPLY_MIN_TOK, int(8 * self.reply_tok))

    def shrunk(self, *, agents: int, tok_divisor: int, time_divisor: float) -> AgentAssumptions:
        """Fewer agents, lengths and times divided: for a small model on a CPU."""
        return replace(
            self,
            agents=min(agents, self.agents),
            start_span_s=self.start_span_s / time_divisor,
            first_tok=self.first_tok / tok_divisor,
            reply_tok=self.reply_tok / tok_divisor,
            tool_tok=self.tool_tok / tok_divisor,
            tool_max_tok=max(TOOL_MIN_TOK + 1, self.tool_max_tok // tok_divisor),
            tool_s=self.tool_s / time_divisor,
            history_tok=self.history_tok // tok_divisor,
        )


def _part(n: int, scale: float) -> int:
    return max(2, round(n * scale)) if scale < 1 else n


def agent_assumptions(overrides: dict[str, float]) -> AgentAssumptions:
    """The defaults with some values changed.

    Raises:
        ConfigError: an unknown name (the valid ones are listed) or a value out of range.
    """
    return checked_overrides(AgentAssumptions, overrides)


class Agent:
    """One task under way.

    Attributes:
        turn: number of the request that it asks next.
        asked: that request: lengths, and how long the tool before it ran.
        cuts: how often it dropped the older half of its history.
    """

    def __init__(self, task: int, assumed: AgentAssumptions, seed: int, vocab_tok: int = VOCAB_TOK) -> None:
        self.session_id, self.turn, self.cuts = f"task{task:02d}", 0, 0
        self._task, self._assumed, self._vocab_tok = task, assumed, vocab_tok
        self.start_s = float(np.random.default_rng([seed, task]).uniform(0.0, assumed.start_span_s))
        rng = np.random.default_rng(task)  # the task is the same for every seed
        n_tok = _length(rng, assumed.first_tok, assumed.first_sd, 1, assumed.first_max_tok)
        self._first, self._turns = self._ids(rng, n_tok), list[Tokens]()
        self._prompt_tok = n_tok
        self.asked = self._next(rng, 0.0)

    def prompt(self) -> Tokens:
        """The task, then for every turn kept the reply and what the tool returned, shape (asked.prompt_tok,)."""
        return np.concatenate([self._first, *self._turns])

    def hear(self, reply: Tokens) -> bool:
        """Read the reply and act on it. False: the agent submits, and asks nothing more."""
        rng = np.random.default_rng(_digest(self._task, self.turn, reply))
        if rng.random() < self._assumed.submit_share:
            return False
        a = self._assumed
        tool = self._ids(rng, _length(rng, a.tool_tok, a.tool_sd, TOOL_MIN_TOK, a.tool_max_tok))
        self._turns.append(np.concatenate([reply, tool]))
        self._prompt_tok += len(self._turns[-1])
        self._cut()
        self.turn += 1
        self.asked = self._next(rng, _lognormal(rng, a.tool_s, a.tool_s_sd))
        return True

    def _cut(self) -> None:
        """Drop the older half of the turns, as often as it takes. The task stays, so that much of a prefix is left."""
        while self._prompt_tok > self._assumed.history_tok and self._turns:
            self._turns = self._turns[-(len(self._turns) // 2) :] if len(self._turns) > 1 else []
            self._prompt_tok = len(self._first) + sum(map(len, self._turns))
            self.cuts += 1

    def _next(self, rng: np.random.Generator, think_s: float) -> Turn:
        a = self._assumed
        return Turn(self._prompt_tok, _length(rng, a.reply_tok, a.reply_sd, REPLY_MIN_TOK, a.reply_max_tok), think_s)

    def _ids(self, rng: np.random.Generator, n_tok: int) -> Tokens:
        return rng.integers(FIRST_TOK, self._vocab_tok, n_tok, dtype=np.int32)


def team(assumed: AgentAssumptions, seed: int, vocab_tok: int = VOCAB_TOK) -> list[Agent]:
    """One agent for every task of a run. A seed moves their starts; the tasks are the same for every seed."""
    return [Agent(task, assumed, seed, vocab_tok) for task in range(assumed.tasks)]


def sampled_reply(agent: Agent, at_s: float, seed: int) -> Tokens:
    """What a model says that is not run: random ids, shape (asked.output_tok,).

    They depend on the moment of asking, as a sampled reply on a GPU depends on the batch that it is computed in; so the
    same agent takes another path on a system with other timing.
    """
    moment = int.from_bytes(hashlib.blake2b(repr(at_s).encode(), digest_size=8).digest(), "little")
    rng = np.random.default_rng([seed, agent._task, agent.turn, moment])
    return agent._ids(rng, agent.asked.output_tok)


def _digest(task: int, turn: int, reply: Tokens) -> list[int]:
    content = hashlib.blake2b(np.ascontiguousarray(reply, dtype=np.int32).tobytes(), digest_size=8).digest()
    return [task, turn, int.from_bytes(content, "little")]


def _lognormal(rng: np.random.Generator, mean: float, sd: float) -> float:
    return float(mean * np.exp(sd * rng.standard_normal() - sd * sd / 2))


def _length(rng: np.random.Generator, mean: float, sd: float, low: int, high: int) -> int:
    return int(np.clip(round(_lognormal(rng, mean, sd)), low, high))
