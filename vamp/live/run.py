"""One `RunSpec` on a live server: start it, replay against it, read its metrics, stop it; all that is left is a
`RunResult` as the simulator's, measured on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vamp.cli.serve import server_command, server_environment
from vamp.config import VampConfig
from vamp.errors import CapacityError, RunError
from vamp.experiments.spec import RunSpec
from vamp.experiments.worker import QUIET
from vamp.live.platform import MODEL, LivePlatform, load_live_platform
from vamp.live.server import HOST, LiveServer, free_port, serving
from vamp.live.watch import GROUPS, Watch, value_or
from vamp.measure.records import CUT, RequestRecord, RunResult
from vamp.workloads import build_trace
from vamp.workloads.agents import agent_assumptions, team
from vamp.workloads.assumptions import SESSIONS
from vamp.workloads.client import (
    AgentTalk,
    ClientOptions,
    RecordedTalk,
    ReplayResult,
    Talk,
    converse_async,
    replay_async,
)
from vamp.workloads.inhouse import inhouse
from vamp.workloads.shrink import shrunk
from vamp.workloads.standin import pick
from vamp.workloads.trace import Trace

Progress = Callable[[int, int], None]
REQUEST_TIMEOUT_S = 300.0
WARMUP_TOK = (64, 8)  # prompt and reply of the request before the run: first requests load and allocate
_CHECK_S = 0.5


def run_live(spec: RunSpec, progress: Progress | None = None, *, port: int | None = None) -> RunResult:
    """Run it.

    Args:
        progress: called with (turns completed, turns in all).
        port: for the server; None takes a free one.

    Raises:
        ConfigError, TraceError: bad platform, trace or port.
        CapacityError: a request is longer than the model's context.
        RunError: the server did not start, or died; the message says why, from its log.
    """
    platform = load_live_platform(spec.platform)
    load = live_load(spec, platform)
    with _ended_by_sigterm(), _kept_on_failure() as folder:
        decisions = folder / "decisions.jsonl"
        chosen = free_port() if port is None else port
        command = live_command(spec, platform, chosen, decisions)
        began_s = time.monotonic()
        with serving(command, live_environment(), folder / "server.log", port=chosen) as server:
            start_s = time.monotonic() - began_s
            done, watch = asyncio.run(_conversed(server, spec, platform, load, progress))
        records = [json.loads(line) for line in decisions.read_text().splitlines()] if decisions.exists() else []
        return _result(spec, platform, load, done, watch, records, start_s)


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """Who talks to the server. `n_turns` is None where nobody knows how many turns there will be."""

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
    _fits("any agent", assumed.longest_tok, platform)
    talks = [AgentTalk(agent) for agent in team(assumed, spec.seed, platform.vocab_tok)]
    label = f"{assumed.label}, lengths / {small.tok_divisor}, times / {small.time_divisor:g}"
    return LiveLoad(talks, label, True, {}, assumed.agents, None, spec.max_virtual_s)


def live_trace(spec: RunSpec, platform: LivePlatform) -> Trace:
    """The workload at this platform's scale; its label says the scale."""
    load = spec.workload
    if load.kind == "replay":
        small = platform.replay
        changes = {"scale": load.scale * small.sessions / SESSIONS, "overrides": small.overrides | load.overrides}
        load = load.model_copy(update=changes)
    trace = build_trace(
        load, seed=spec.seed, growth_tok=platform.inhouse.growth_tok, output_tok=platform.inhouse.output_tok
    )
    if load.kind == "inhouse":
        return replace(trace, label=f"{trace.label}, {load.growth_tok or platform.inhouse.growth_tok} tokens a turn")
    small = platform.replay
    if len(trace.sessions) > small.sessions:
        kept = pick(range(len(trace.sessions)), small.sessions)
        trace = replace(trace, sessions=tuple(trace.sessions[i] for i in kept))
    trace = replace(trace, label=f"{trace.label}, {len(trace.sessions)} sessions")
    return shrunk(trace, tok_divisor=small.tok_divisor, time_divisor=small.time_divisor)


def check_fits(trace: Trace, platform: LivePlatform) -> None:
    """Raises CapacityError: names the session, its length and the limit."""
    for session in trace.sessions:
        _fits(session.session_id, session.max_tok, platform)


def _fits(session_id: str, n_tok: int, platform: LivePlatform) -> None:
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
        "load-format": "dummy",
        "block-size": platform.kv.block_tok,
        "num-gpu-blocks-override": platform.base_blk,
        "kv-cache-memory-bytes": platform.base_blk * platform.kv.block_bytes,
        "max-model-len": platform.max_model_len,
        "max-num-seqs": platform.max_num_seqs,
        "max-num-batched-tokens": platform.max_num_batched_tokens,
        "seed": spec.seed,
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
    return server_command(str(platform.model_dir), args, ratio=spec.ratio_pct, staging=spec.staging)


def live_environment() -> dict[str, str]:
    """This process's, less what keeps a simulating worker quiet and on one thread."""
    inherited = {name: value for name, value in os.environ.items() if QUIET.get(name) != value}
    offline = {name: QUIET[name] for name in ("VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE", "DO_NOT_TRACK")}
    return server_environment(inherited | offline)


async def _conversed(
    server: LiveServer, spec: RunSpec, platform: LivePlatform, load: LiveLoad, progress: Progress | None
) -> tuple[ReplayResult, Watch]:
    """The sessions, watched; an error as soon as the server is gone."""
    options = ClientOptions(
        server.url,
        model=platform.model,
        return_token_ids=True,
        concurrency=load.at_once,
        max_run_s=load.run_s,
        request_timeout_s=REQUEST_TIMEOUT_S,
        vocab_tok=platform.vocab_tok,
    )
    await _warm_up(replace(options, max_run_s=None))
    began_s = time.monotonic()
    watch = Watch(server.url, lambda: time.monotonic() - began_s, platform.base_blk)
    await watch.sample()
    n_done = 0

    def on_turn(record: RequestRecord) -> None:
        nonlocal n_done
        n_done += 1
        if progress and load.n_turns:
            progress(n_done, load.n_turns)
        elif progress and load.run_s:
            progress(int(time.monotonic() - began_s), int(load.run_s))

    of_all = f" of {load.n_turns}" if load.n_turns else ""
    sampling = asyncio.create_task(watch.keep_sampling())
    replaying = asyncio.create_task(converse_async(load.talks, options, on_turn))
    try:
        while not replaying.done():
            await asyncio.wait([replaying], timeout=_CHECK_S)
            if server.ended:
                raise RunError(server.obituary(f"after {n_done} turns{of_all}"))
        done = _cut_off(await replaying) if spec.fixed_time else await replaying
        if done.failures and not await asyncio.to_thread(server.healthy):
            raise RunError(server.obituary(f"after {n_done} turns{of_all}"))
        await watch.sample()
    finally:
        for task in (sampling, replaying):
            task.cancel()
        await asyncio.gather(sampling, replaying, return_exceptions=True)
    return done, watch


def _cut_off(done: ReplayResult) -> ReplayResult:
    """What was under way when the time was up is unfinished, not failed."""
    for record in done.requests:
        if done.stopped and record.error == done.stopped:
            record.error = CUT
    return done


async def _warm_up(options: ClientOptions) -> None:
    prompt_tok, output_tok = WARMUP_TOK
    done = await replay_async(inhouse(1, prompt_tok, output_tok, seed=2**31, scale=1e-9), options)
    if done.failures:
        raise RunError(f"the server refuses the first request: {next(iter(done.failures))}")


def _result(
    spec: RunSpec,
    platform: LivePlatform,
    load: LiveLoad,
    done: ReplayResult,
    watch: Watch,
    decisions: list[dict[str, Any]],
    start_s: float,
) -> RunResult:
    timeline = watch.timeline()
    experts = platform.experts
    all_groups = experts.n_shards // experts.shards_per_group * experts.eligible_layers
    return RunResult(
        requests=done.frame,
        timeline=timeline,
        preemption_s=watch.preemption_s(),
        decisions=decisions,
        meta={
            "backend": "cpu",
            "live": True,
            "model": f"{platform.model}, {MODEL}",
            "system": spec.system,
            "label": load.label,
            "stand_in": load.stand_in,
            "notes": load.notes,
            "n_sessions": len(load.talks),
            "n_turns": load.n_turns or len(done.turns),
            "unsent_turns": (load.n_turns or len(done.turns)) - len(done.turns),
            "failures": dict(done.failures),
            "wall_s": round(done.wall_s, 3),
            "server_start_s": round(start_s, 1),
            "base_blk": platform.base_blk,
            "pool_blk": int(timeline["pool_blk"].iloc[-1]),
            "preemptions_by": "server",
            "boundary_ratio_pct_mean": 100.0 * watch.groups_mean() / all_groups,
            "n_groups_max": max(int(value_or(scrape, GROUPS, 0.0)) for _, scrape in watch.samples),
            "n_groups_limit": experts.max_groups(spec.ratio_pct),
        },
    )


@contextmanager
def _kept_on_failure() -> Iterator[Path]:
    """A folder for the server's log and decisions, which stays if the server is to blame for how the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="vamp-server-"))
    try:
        yield folder
    except RunError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM unwinds this block, so that the server is stopped in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
