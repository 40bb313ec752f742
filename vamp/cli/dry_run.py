"""`vamp run --dry-run`: what a live run would start, and whether this machine has what it needs."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import typer

from vamp.errors import ConfigError
from vamp.experiments.progress import describe
from vamp.experiments.spec import RunSpec
from vamp.experiments.store import pinned
from vamp.live.needs import needs
from vamp.live.plan import check_fits, live_command, live_environment, live_trace
from vamp.live.platform import LIVE_BACKENDS, load_live_platform
from vamp.workloads.trace import Trace

DECISIONS = Path("DECISIONS.jsonl")
PORT = 8000
"""Named in the command; a run takes a free one."""


def show_plans(specs: list[RunSpec], as_json: bool) -> None:
    """Print the plan of each run, as text or as one JSON object; nothing starts.

    Raises:
        ConfigError: the backend starts no server, or a setting is wrong.
        CapacityError: a request is longer than the model's context.
    """
    plans = [_plan(spec) for spec in specs]
    if as_json:
        typer.echo(json.dumps(plans[0] if len(plans) == 1 else {"plans": plans}))
        return
    for plan in plans:
        typer.echo(f"# {plan['run']}, {plan['label']}")
        typer.echo(
            " ".join([*(f"{k}={shlex.quote(v)}" for k, v in plan["environment"].items()), shlex.join(plan["command"])])
        )
        for name, value in plan["workload"].items():
            typer.echo(f"  {name}: {value}")
    for need in plans[0]["needs"]:
        typer.echo(
            f"{'missing' if need['problem'] else 'found':>7}  {need['name']}: {need['problem'] or need['found']}"
        )


def _plan(spec: RunSpec) -> dict[str, Any]:
    if spec.backend not in LIVE_BACKENDS:
        raise ConfigError(f"--dry-run with backend {spec.backend!r}: only {' and '.join(LIVE_BACKENDS)} start a server")
    platform = load_live_platform(spec.platform)
    trace = live_trace(pinned(spec), platform)
    check_fits(trace, platform)
    environment = live_environment(platform)
    return {
        "run": describe(spec),
        "label": platform.label,
        "command": live_command(spec, platform, PORT, DECISIONS),
        "environment": {name: value for name, value in environment.items() if os.environ.get(name) != value},
        "workload": _workload(trace),
        "needs": [{"name": n.name, "found": n.found, "problem": n.problem} for n in needs(platform, PORT)],
    }


def _workload(trace: Trace) -> dict[str, Any]:
    turns = [turn for session in trace.sessions for turn in session.turns]
    return {
        "workload": trace.label,
        "sessions": len(trace.sessions),
        "turns": len(turns),
        "prompt_tok": sum(turn.prompt_tok for turn in turns),
        "output_tok": sum(turn.output_tok for turn in turns),
        "longest_request_tok": trace.max_tok,
        "longest_contexts_tok": sum(session.max_tok for session in trace.sessions),
    }
