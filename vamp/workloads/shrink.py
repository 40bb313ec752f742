"""A workload for large GPUs, cut down to what a small model on a CPU serves: the same shape, less of everything."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vamp.workloads.trace import Session, Tokens, TokenSource, Trace, Turn


@dataclass(frozen=True, slots=True)
class Strided:
    """Every k-th token of another session's prompts: what two prompts share at their heads, they share in proportion.

    Attributes:
        turns: the shrunk ones; their lengths are given out.
    """

    base: TokenSource
    turns: tuple[Turn, ...]
    every: int

    def prompt(self, turn: int) -> Tokens:
        return self.base.prompt(turn)[:: self.every][: self.turns[turn].prompt_tok]

    def output(self, turn: int) -> Tokens:
        """The tokens that follow in the next prompt if it extends this one, else the head of the recorded reply."""
        own = self.turns[turn]
        if turn + 1 < len(self.turns):
            following = self.prompt(turn + 1)[own.prompt_tok : own.prompt_tok + own.output_tok]
            if len(following) == own.output_tok:
                return following
        return self.base.output(turn)[: own.output_tok]


def shrunk(trace: Trace, *, tok_divisor: int, time_divisor: float) -> Trace:
    """Lengths divided by `tok_divisor`, rounded up; starts and think times divided by `time_divisor`."""
    sessions = tuple(_session(s, tok_divisor, time_divisor) for s in trace.sessions)
    label = f"{trace.label}, lengths / {tok_divisor}, times / {time_divisor:g}"
    return replace(trace, label=label, sessions=sessions)


def _session(session: Session, tok_divisor: int, time_divisor: float) -> Session:
    turns = tuple(
        Turn(-(-t.prompt_tok // tok_divisor), -(-t.output_tok // tok_divisor), t.think_s / time_divisor)
        for t in session.turns
    )
    tokens = Strided(session.tokens, turns, tok_divisor)
    return replace(session, turns=turns, tokens=tokens, start_s=session.start_s / time_divisor)
