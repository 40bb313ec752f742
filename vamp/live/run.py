"""One `RunSpec` on a live server: start it, replay against it, read its metrics, stop it; all that is left is a
`RunResult` as the simulator's, measured on this machine."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vamp.errors import RunError
from vamp.experiments.spec import RunSpec
from vamp.live.devices import cuda_devices
from vamp.live.load import LiveLoad, live_load
from vamp.live.needs import check_needs
from vamp.live.plan import live_command, live_environment
from vamp.live.platform import LivePlatform, load_live_platform
from vamp.live.server import LiveServer, free_port, serving
from vamp.live.watch import GROUPS, Watch, value_or
from vamp.measure.records import CUT, RequestRecord, RunResult
from vamp.workloads.client import ClientOptions, ReplayResult, converse_async, replay_async
from vamp.workloads.inhouse import inhouse

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
        ConfigError, TraceError: bad platform, trace or port, or this machine lacks something (see `needs`).
        CapacityError: a request is longer than the model's context.
        RunError: the server did not start, or died; the message says why, from its log.
    """
    platform = load_live_platform(spec.platform)
    load = live_load(spec, platform)
    check_needs(platform)
    with _ended_by_sigterm(), _kept_on_failure() as folder:
        decisions = folder / "decisions.jsonl"
        chosen = free_port() if port is None else port
        command = live_command(spec, platform, chosen, decisions)
        began_s = time.monotonic()
        with serving(command, live_environment(platform), folder / "server.log", port=chosen) as server:
            start_s = time.monotonic() - began_s
            done, watch = asyncio.run(_conversed(server, spec, platform, load, progress))
        records = [json.loads(line) for line in decisions.read_text().splitlines()] if decisions.exists() else []
        return _result(spec, platform, load, done, watch, records, start_s)


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
            "backend": platform.backend,
            "live": True,
            "model": f"{platform.model}, {platform.label}",
            "gpus": [asdict(device) for device in cuda_devices()],
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
