"""Who talks to a live server: recorded sessions, or agents that read each reply before they decide, at its scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vamp.experiments.spec import RunSpec
from vamp.live.plan import check_fits, fits, live_trace
from vamp.live.platform import LivePlatform
from vamp.workloads.agents import agent_assumptions, team
from vamp.workloads.client import AgentTalk, RecordedTalk, Talk


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """`n_turns` is None where nobody knows how many turns there will be."""

    talks: Sequence[Talk]
    label: str
    stand_in: bool
    notes: dict[str, int | float | str]
    at_once: int | None
    n_turns: int | None
    run_s: float | None


def live_load(spec: RunSpec, platform: LivePlatform) -> LiveLoad:
    """Recorded sessions or agents at this platform's scale.

    Raises:
        CapacityError: a request is longer than the model's context.
    """
    load = spec.workload
    if load.kind == "agents":
        return _live_agents(spec, platform)
    trace = live_trace(spec, platform)
    check_fits(trace, platform)
    ordered = sorted(trace.sessions, key=lambda session: session.start_s)
    talks = [RecordedTalk(session, platform.vocab_tok, carry_replies=False) for session in ordered]
    at_once = load.concurrency if load.kind == "trace" else None
    run_s = spec.max_virtual_s if spec.fixed_time else None
    return LiveLoad(talks, trace.label, trace.stand_in, trace.notes, at_once, trace.n_turns, run_s)


def _live_agents(spec: RunSpec, platform: LivePlatform) -> LiveLoad:
    small = platform.replay
    assumed = (
        agent_assumptions(spec.workload.overrides)
        .shrunk(agents=small.sessions, tok_divisor=small.tok_divisor, time_divisor=small.time_divisor)
        .scaled(spec.workload.scale)
    )
    fits("any agent", assumed.longest_tok, platform)
    talks = [AgentTalk(agent) for agent in team(assumed, spec.seed, platform.vocab_tok)]
    label = f"{assumed.label}, lengths / {small.tok_divisor}, times / {small.time_divisor:g}"
    return LiveLoad(talks, label, True, {}, assumed.agents, None, spec.max_virtual_s)
