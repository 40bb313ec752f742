"""What a live run is going to be: its workload, the server's command line and its environment; nothing starts here."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from vamp.cli.serve import server_command, server_environment
from vamp.config import VampConfig
from vamp.errors import CapacityError
from vamp.experiments.spec import RunSpec
from vamp.experiments.worker import QUIET
from vamp.live.needs import BUILD
from vamp.live.platform import LivePlatform
from vamp.live.server import HOST
from vamp.paths import data_dir
from vamp.workloads import build_trace
from vamp.workloads.assumptions import SESSIONS
from vamp.workloads.shrink import shrunk
from vamp.workloads.standin import pick
from vamp.workloads.trace import Trace


def live_trace(spec: RunSpec, platform: LivePlatform) -> Trace:
    """The workload at this platform's scale; its label says the scale."""
    load = spec.workload
    small = platform.replay
    if load.kind == "replay":
        changes = {"scale": load.scale * small.sessions / SESSIONS, "overrides": small.overrides | load.overrides}
        load = load.model_copy(update=changes | {"limit_turns": load.limit_turns or small.limit_turns})
    if load.kind == "inhouse":
        load = load.model_copy(update={"limit_turns": load.limit_turns or platform.inhouse.limit_turns})
    trace = build_trace(
        load, seed=spec.seed, growth_tok=platform.inhouse.growth_tok, output_tok=platform.inhouse.output_tok
    )
    if load.kind == "inhouse":
        return replace(trace, label=f"{trace.label}, {load.growth_tok or platform.inhouse.growth_tok} tokens a turn")
    if len(trace.sessions) > small.sessions:
        kept = pick(range(len(trace.sessions)), small.sessions)
        trace = replace(trace, sessions=tuple(trace.sessions[i] for i in kept))
    trace = replace(trace, label=f"{trace.label}, {len(trace.sessions)} sessions")
    if (small.tok_divisor, small.time_divisor) == (1, 1):
        return trace
    return shrunk(trace, tok_divisor=small.tok_divisor, time_divisor=small.time_divisor)


def check_fits(trace: Trace, platform: LivePlatform) -> None:
    """Raises CapacityError: names the session, its length and the limit."""
    for session in trace.sessions:
        fits(session.session_id, session.max_tok, platform)


def fits(session_id: str, n_tok: int, platform: LivePlatform) -> None:
    """Likewise, for one session."""
    if n_tok > platform.max_model_len:
        raise CapacityError(
            f"session {session_id!r} needs {n_tok} tokens at once, more than the server's "
            f"context of {platform.max_model_len} on {platform.name}: shorten the trace (--limit-turns)"
        )


def live_command(spec: RunSpec, platform: LivePlatform, port: int, decisions: Path) -> list[str]:
    """`vamp serve`'s command line for this run."""
    options: dict[str, Any] = {
        "host": HOST,
        "port": port,
        "served-model-name": platform.model,
        "num-gpu-blocks-override": platform.base_blk,
        "max-model-len": platform.max_model_len,
        "max-num-seqs": platform.max_num_seqs,
        "max-num-batched-tokens": platform.max_num_batched_tokens,
        "tensor-parallel-size": platform.tp,
        "seed": spec.seed,
        **({"load-format": "dummy"} if platform.checkpoint is None else {}),
        **({"tokenizer": str(data_dir() / "models" / platform.tokenizer)} if platform.tokenizer else {}),
        **platform.server_args,
    }
    args = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    args += ["--enable-prompt-tokens-details", "--enable-per-request-metrics", "--disable-uvicorn-access-log"]
    if platform.hf_overrides:
        args += ["--hf-overrides", json.dumps(platform.hf_overrides)]
    if not spec.reserve_full_isl:
        args += ["--no-scheduler-reserve-full-isl"]
    if spec.ratio_pct:
        config = VampConfig(
            ratio_pct=spec.ratio_pct,
            staging=spec.staging,
            cost=spec.cost,
            vmm_page_bytes=platform.expert_page_bytes,
            decision_log=str(decisions),
        )
        args += ["--additional-config", json.dumps({"vamp": config.model_dump()})]
    build = BUILD[platform.backend]
    return server_command(platform.served, args, ratio=spec.ratio_pct, staging=spec.staging, build=build)


def live_environment(platform: LivePlatform) -> dict[str, str]:
    """This process's, less what keeps a simulating worker quiet and on one thread, and with the platform's."""
    inherited = {name: value for name, value in os.environ.items() if QUIET.get(name) != value}
    offline = {name: QUIET[name] for name in ("VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE", "DO_NOT_TRACK")}
    return server_environment(inherited | offline | platform.environment, BUILD[platform.backend])
