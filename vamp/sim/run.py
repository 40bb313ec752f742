"""One `RunSpec` in virtual time: the whole pipeline from platform and trace to a `RunResult`."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vamp.config import VampConfig
from vamp.errors import CapacityError
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.sim.arrivals import AgentArrivals, Arrivals, Source
from vamp.sim.clock import VirtualClock
from vamp.sim.platforms import Platform, load_platform
from vamp.workloads import build_trace
from vamp.workloads.agents import agent_assumptions, team
from vamp.workloads.trace import Trace

Progress = Callable[[int, int], None]


def vamp_config(spec: RunSpec) -> VampConfig | None:
    """What the engine is told; None for plain vLLM."""
    if spec.ratio_pct == 0:
        return None
    return VampConfig(ratio_pct=spec.ratio_pct, staging=spec.staging, cost=spec.cost)


def run_spec(spec: RunSpec, progress: Progress | None = None) -> RunResult:
    """Run it.

    Args:
        progress: called with (turns completed, turns in all).

    Raises:
        ConfigError, TraceError: bad platform, coefficient or trace.
        CapacityError: a request can never fit.
        RunError: no progress.
    """
    platform = load_platform(spec.platform)
    if spec.workload.kind == "agents":
        return _drive(spec, platform, _agents(spec), progress)
    trace = build_trace(
        spec.workload,
        seed=spec.seed,
        growth_tok=platform.inhouse_growth_tok,
        output_tok=platform.inhouse_output_tok,
    )
    return simulate(spec, platform, trace, progress)


@dataclass(frozen=True, slots=True)
class Load:
    """What the driver is given: where requests come from, and what is known of them before they come.

    Attributes:
        n_turns: None where nobody knows.
        longest: the session with the longest prompt plus reply, and that length in tokens.
    """

    source: Source
    label: str
    stand_in: bool
    notes: dict[str, int | float | str]
    n_sessions: int
    n_turns: int | None
    longest: tuple[str, int]


def simulate(spec: RunSpec, platform: Platform, trace: Trace, progress: Progress | None = None) -> RunResult:
    """As `run_spec`, on a given trace."""
    longest = max(trace.sessions, key=lambda s: s.max_tok)
    load = Load(
        source=Arrivals(trace, spec.workload.concurrency if spec.workload.kind == "trace" else None),
        label=trace.label,
        stand_in=trace.stand_in,
        notes=trace.notes,
        n_sessions=len(trace.sessions),
        n_turns=trace.n_turns,
        longest=(longest.session_id, longest.max_tok),
    )
    return _drive(spec, platform, load, progress)


def _agents(spec: RunSpec) -> Load:
    assumed = agent_assumptions(spec.workload.overrides).scaled(spec.workload.scale)
    return Load(
        source=AgentArrivals(team(assumed, spec.seed), assumed.agents, spec.seed),
        label=assumed.label,
        stand_in=True,
        notes={},
        n_sessions=assumed.tasks,
        n_turns=None,
        longest=("any agent", assumed.longest_tok),
    )


def _drive(spec: RunSpec, platform: Platform, load: Load, progress: Progress | None) -> RunResult:
    from vamp.sim.driver import Driver  # these import vLLM: seconds, and only when something runs
    from vamp.sim.engine import build_scheduler
    from vamp.sim.fast_manager import DecodeMemo

    clock = VirtualClock()
    config = vamp_config(spec)
    scheduler, make_request = build_scheduler(
        platform,
        vamp=config.model_dump() if config else None,
        clock=clock,
        reserve_full_isl=spec.reserve_full_isl,
        async_scheduling=spec.async_scheduling,
        max_num_batched_tokens=spec.max_num_batched_tokens,
    )
    DecodeMemo(scheduler.kv_cache_manager, platform.kv.block_tok).install()
    controller = getattr(scheduler, "vamp", None)
    max_blk = controller.plan.max_blk if controller else platform.base_blk
    check_fits(load.longest, platform, max_blk, scheduler.max_model_len)
    if controller:
        controller.timing = True
    coefficients = platform.scaled(spec.step_time)
    driver = Driver(
        scheduler,
        make_request,
        clock,
        load.source,
        platform.step_model(spec.step_time),
        staging=spec.staging,
        in_flight=2 if spec.async_scheduling else 1,
        remap_us_per_page=coefficients.remap_us_per_page,
        remap_ms=coefficients.remap_ms,
        noise_sd=coefficients.noise_sd,
        seed=spec.seed,
        max_virtual_s=spec.max_virtual_s,
        fixed_time=spec.fixed_time,
    )
    done = 0

    def on_turn(n: int) -> None:
        nonlocal done
        done += n
        if progress and load.n_turns:
            progress(done, load.n_turns)
        elif progress:  # nobody knows how many turns there will be, but when the run ends
            progress(int(clock.now_s()), int(spec.max_virtual_s))

    gc.collect()
    gc.freeze()  # as vLLM's engine core does: the imported world need not be scanned again and again
    wall_start_s = time.perf_counter()
    driver.run(on_turn)
    wall_s = time.perf_counter() - wall_start_s
    if controller:
        controller.pool.check()
    return RunResult(
        requests=RunResult.requests_frame(driver.records),
        timeline=RunResult.timeline_frame(driver.timeline),
        preemption_s=driver.preemption_s,
        decisions=controller.log.records if controller else [],
        meta={
            "backend": "sim",
            "system": spec.system,
            "label": load.label,
            "stand_in": load.stand_in,
            "notes": load.notes,
            "n_sessions": load.n_sessions,
            "n_turns": len(driver.records) if load.n_turns is None else load.n_turns,
            "steps": driver.steps,
            "wall_s": round(wall_s, 3),
            "virtual_s": clock.now_s(),
            "compute_s": driver.compute_s,
            "exposed_staging_s": driver.exposed_s,
            "remap_s": driver.remap_s,
            "base_blk": platform.base_blk,
            "pool_blk": scheduler.kv_cache_manager.block_pool.num_gpu_blocks,
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            **_controller_meta(controller, driver),
        },
    )


def _controller_meta(controller: Any, driver: Any) -> dict[str, Any]:
    """What the controller did. The mean boundary is weighted by steps and given as a percentage of all shards of the
    eligible layers, like VAMP-r."""
    if controller is None:
        return {
            "invocations": 0,
            "deferred": 0,
            "decisions": {},
            "boundary_ratio_pct_mean": 0.0,
            "n_groups_max": 0,
        }
    experts = controller.plan.experts
    groups_all = experts.n_shards // experts.shards_per_group * experts.eligible_layers
    meta = {
        "invocations": controller.invocations,
        "deferred": controller.deferred,
        "decisions": {plan.value: n for plan, n in controller.counts.items()},
        "boundary_ratio_pct_mean": 100.0 * driver.group_steps / max(1, driver.steps) / groups_all,
        "n_groups_max": controller.groups,
        "n_groups_limit": controller.plan.limit_groups,
        "decision_n": len(controller.decide_ns),
    }
    if len(controller.decide_ns) > 1:
        cuts = statistics.quantiles(controller.decide_ns, n=100)
        meta |= {"decision_us_p50": cuts[49] / 1e3, "decision_us_p99": cuts[98] / 1e3}
    return meta


def check_fits(longest: tuple[str, int], platform: Platform, max_blk: int, max_model_len: int) -> None:
    """The longest request must fit at once, or the engine would wait for ever without an error.

    Raises:
        CapacityError: names the session, its length and the limit.
    """
    kv = platform.kv
    state_blk = 2 * (platform.experts.n_layers // platform.attention_layers - 1)  # old and new state of each GDN group
    fits_tok = (max_blk - 1 - state_blk) * kv.block_tok
    limit_tok = min(fits_tok, max_model_len)
    session_id, n_tok = longest
    if n_tok > limit_tok:
        which = f"the model's context of {max_model_len}" if limit_tok == max_model_len else f"the pool's {fits_tok}"
        raise CapacityError(
            f"session {session_id!r} needs {n_tok} tokens at once, more than {which} on {platform.name}: "
            "shorten the trace (--limit-turns), raise --ratio, or choose a larger platform"
        )
