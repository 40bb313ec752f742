"""What `engine_check` runs in one engine: a name and a function for every phase. All take the live engine."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from vamp.calibrate.engine import Engine, intervals_ms, prompt

Phase = Callable[[Engine], Any]

EQUAL_N = (1, 8, 32)
PADDED_N = 33
"""Requests whose decode steps run in the graph for 40."""
DECODE_N = (1, 8, 32, 64)
RATIOS_PCT = (15.0, 25.0)
TIMED_PCT = 15.0
PREFILL_TOK = (8_160, 8_192)
"""15 blocks of 544 tokens in one step; 8,192 takes a second step of 32 tokens, since chunks end at block borders."""
LARGE_GROWTH_BYTES = 1.1 * 2**30
OUT_TOK = 32
FREE_BLK = 4
"""Left of the pool when it shall grow on demand."""


def equality(engine: Engine, requests: Sequence[int] = EQUAL_N) -> dict[str, Any]:
    """Answers of so many requests."""
    return {str(n): engine.tokens(prompts(n), OUT_TOK) for n in requests}


def equality_and_padded(engine: Engine) -> dict[str, Any]:
    return equality(engine, (*EQUAL_N, PADDED_N))


def prompts(n: int) -> list[dict[str, list[int]]]:
    """300 to 2,203 tokens each: several prefill steps, which decode steps mix with, for many requests."""
    return [prompt(300 + 173 * (i % 12), 31 * n + i) for i in range(n)]


def warm_up(engine: Engine) -> int:
    """Every batch size once before anything is timed: kernels are compiled and tuned at their first use."""
    for n in DECODE_N:
        engine.decode_ms(n, 16)
    for n_tok in PREFILL_TOK:
        engine.prefill_ms(n_tok, 1)
    return len(DECODE_N)


def decode(engine: Engine) -> list[dict[str, Any]]:
    """The best of three runs for each batch size, since what disturbs a step only adds to it; all medians beside it."""
    rows: list[dict[str, Any]] = []
    for n in DECODE_N:
        runs = [engine.decode_ms(n) for _ in range(3)]
        best = min(runs, key=lambda run: run["median_ms"])
        rows.append({**best, "medians_ms": [run["median_ms"] for run in runs]})
    return rows


def prefill(engine: Engine) -> list[dict[str, Any]]:
    return [engine.prefill_ms(n_tok) for n_tok in PREFILL_TOK]


PLAIN: dict[str, Phase] = {
    "warm up": warm_up,
    "tokens": equality_and_padded,
    "tokens again": equality,
    "decode": decode,
    "prefill": prefill,
}


AGAIN: dict[str, Phase] = {"warm up": warm_up, "tokens": equality_and_padded}
"""Plain vLLM in a second process, which may choose other kernels than the first."""


def offloaded(phase: Phase, ratio_pct: float, mode: str) -> Phase:
    """The phase with that ratio offloaded from the start, and the staging mode of steps outside graphs."""

    def run(engine: Engine) -> dict[str, Any]:
        engine.memory.mode = mode
        engine.offload(engine.groups_at(ratio_pct))
        try:
            result = {"ratio_pct": ratio_pct, "mode": mode, "result": phase(engine), "rank": ranks(engine)}
            return result | {"offloaded_bytes": offloaded_bytes(engine)}
        finally:
            engine.offload(0)

    return run


def offloaded_bytes(engine: Engine) -> int:
    """What whole-region staging copies in one step."""
    plan = engine.memory.remapper.layout.plan
    total: int = engine.scheduler.vamp.groups * plan.experts.group_bytes
    return total


def ranks(engine: Engine) -> dict[str, Any]:
    """The rank's counters, checked first."""
    engine.memory.remapper.check()
    engine.pool.check()
    return dataclasses.asdict(engine.memory.stats())


def growing(ratio_pct: float, mode: str) -> Phase:
    """Answers while the pool grows from a few blocks, request by request."""

    def run(engine: Engine) -> dict[str, Any]:
        engine.memory.mode = mode
        result: dict[str, Any] = {"ratio_pct": ratio_pct, "mode": mode, "result": {}, "groups": {}}
        for n in EQUAL_N:
            with engine.growing(ratio_pct):
                result["result"][str(n)] = engine.tokens(prompts(n), OUT_TOK, FREE_BLK)
                result["groups"][str(n)] = engine.scheduler.vamp.groups
                engine.memory.remapper.check()
        return result

    return run


def broken(engine: Engine) -> dict[str, Any]:
    """The negative control: experts offloaded, and nothing staged in either mode."""
    copier = engine.memory.copier
    engine.memory.mode = "whole_region"
    engine.offload(engine.groups_at(max(RATIOS_PCT)))
    engine.memory.routed.stage_nothing()
    copier.stage_tensor = lambda *_: 0
    try:
        return equality(engine)
    finally:
        del copier.stage_tensor
        engine.offload(0)


def routed_decode(engine: Engine) -> list[dict[str, Any]]:
    """Decode steps with experts staged as they are selected: time, and offloaded experts per layer and step."""
    engine.offload(engine.groups_at(TIMED_PCT))
    rows = [_routed_row(engine, n) for n in DECODE_N]
    engine.offload(0)
    return rows


def _routed_row(engine: Engine, n: int) -> dict[str, Any]:
    routed, experts = engine.memory.routed, engine.memory.remapper.layout.plan.experts
    counted = False

    def count(full: int) -> None:
        nonlocal counted
        if full >= 4 and not counted:  # all prompts are done
            routed.forget_counts()
            counted = True

    steps = engine.drive([prompt(512, 1000 * n + i) for i in range(n)], 64, count)
    times = intervals_ms(steps, n)[8:-2]
    per_layer = [s / m for s, m in zip(routed.staged_shards(), routed.launches(), strict=True) if m]
    return {
        "n": n,
        "median_ms": statistics.median(times),
        "mean_ms": statistics.mean(times),
        "experts_per_layer": statistics.mean(per_layer),
        "step_bytes": sum(per_layer) * experts.shard_bytes,
    }


def padded_rows(engine: Engine) -> dict[str, Any]:
    """Answers of 33 requests in the graph for 40, and what staging costs with and without the rows that pad it."""
    memory = engine.memory
    memory.mode = "routed"
    engine.offload(engine.groups_at(TIMED_PCT))
    found: dict[str, Any] = {"result": equality(engine, (PADDED_N,)), "real_rows_only": memory.real_rows_only}
    try:
        found["real"] = _routed_row(engine, PADDED_N)
        memory.real_rows_only = False
        found["all"] = _routed_row(engine, PADDED_N)
    finally:
        memory.real_rows_only = found["real_rows_only"]
        engine.offload(0)
    return found


def growth_pause(engine: Engine) -> dict[str, Any]:
    """What 8 decoding requests notice of a growing pool: the step that contains it, over its neighbours' median."""
    plan = engine.memory.remapper.layout.plan
    large = min(round(LARGE_GROWTH_BYTES / plan.experts.group_bytes), plan.limit_groups - 8 * plan.increment_groups)
    portions = {**dict.fromkeys(range(20, 50, 5), plan.increment_groups), 60: large}
    moves: dict[int, dict[str, float]] = {}
    controller = engine.scheduler.vamp
    engine.offload(plan.increment_groups)  # so that staging is at work before and after

    def move(full: int) -> None:
        if full in portions and full not in moves:
            started = time.perf_counter()
            if not controller._move(controller.groups + portions[full]):
                raise RuntimeError("the pool did not grow")
            groups = portions[full]
            mib = groups * plan.experts.group_bytes / 2**20
            moves[full] = {"groups": groups, "mib": mib, "call_ms": (time.perf_counter() - started) * 1e3}

    steps = engine.drive([prompt(512, i) for i in range(8)], 80, move)
    full_steps = [step for step in steps if step.n_outputs == 8]
    for full, row in moves.items():
        row["step_ms"] = max(intervals_ms(full_steps[full - 1 : full + 3], 8))
        row["pause_ms"] = row["step_ms"] - statistics.median(intervals_ms(full_steps[full - 4 : full + 6], 8))
    engine.offload(0)
    return {"moves": list(moves.values())}


SOAK_CYCLES = 5
SOAK_INCREMENTS = 30
"""Per cycle, one a decode step."""
SOAK_SLACK_BYTES = 2 * 2**20


def soak(engine: Engine) -> dict[str, Any]:
    """Growth and staging under load, back to nothing, again: device memory that no one has, and answers at the end.

    The cycles that are counted come after one in either staging mode that is not.
    """
    free = [_soak_cycle(engine, cycle) for cycle in range(SOAK_CYCLES + 2)][2:]
    engine.memory.mode = "auto"
    varies = max(free) - min(free)
    return {
        "result": equality(engine),
        "increments": SOAK_CYCLES * SOAK_INCREMENTS,
        "free_bytes": free,
        "varies_bytes": varies,
        "steady": varies <= SOAK_SLACK_BYTES,
        "rank": ranks(engine),
    }


def _soak_cycle(engine: Engine, cycle: int) -> int:
    """Bytes of the device that are free at the end, with nothing offloaded.

    Raises:
        RuntimeError: the pool did not grow as often as it should.
    """
    import torch

    controller, increment = engine.scheduler.vamp, engine.memory.remapper.layout.plan.increment_groups
    engine.memory.mode = ("routed", "whole_region")[cycle % 2]
    engine.offload(10 * increment)  # so that prompts are staged, too
    grown = 0

    def grow(full: int) -> None:
        nonlocal grown
        if full > grown and grown < SOAK_INCREMENTS:
            if not controller._move(controller.groups + increment):
                raise RuntimeError(f"the pool did not grow from {controller.groups} groups")
            grown += 1

    engine.drive([prompt(512, 10 * cycle + i) for i in range(8)], SOAK_INCREMENTS + 8, grow)
    ranks(engine)
    engine.offload(0)
    ranks(engine)
    if grown != SOAK_INCREMENTS:
        raise RuntimeError(f"the pool grew {grown} times of {SOAK_INCREMENTS}")
    torch.cuda.synchronize()
    free_bytes: int = torch.cuda.mem_get_info()[0]
    return free_bytes


def table2(engine: Engine) -> list[dict[str, float]]:
    """Reclaimed memory and pool size, from the pages that are mapped."""
    layout, rows = engine.memory.remapper.layout, []
    for ratio_pct in (0.0, 15.0, 20.0):
        engine.offload(engine.groups_at(ratio_pct))
        pages = engine.memory.remapper.holdings.kv - layout.kv_base_pages * layout.plan.kv.n_tensors
        blocks = engine.pool.num_gpu_blocks
        rows.append(
            {
                "ratio_pct": ratio_pct,
                "groups": engine.scheduler.vamp.groups,
                "reclaimed_gib": pages * layout.page_bytes / 2**30,
                "pool_blk": blocks,
                "pool_gib": blocks * layout.plan.kv.block_bytes / 2**30,
            }
        )
    engine.offload(0)
    return rows


def costs(engine: Engine) -> dict[str, Any]:
    experts = engine.memory.remapper.layout.plan.experts
    found = dataclasses.asdict(engine.memory.costs)
    return found | {"shard_bytes": experts.shard_bytes, "eligible_layers": experts.eligible_layers}


VAMP: dict[str, Phase] = {
    "costs": costs,
    "warm up": warm_up,
    "tokens, nothing offloaded": equality_and_padded,
    **{
        f"tokens, {ratio:g} %, {mode}": offloaded(equality, ratio, mode)
        for ratio in RATIOS_PCT
        for mode in ("whole_region", "routed")
    },
    **{
        f"tokens, growing to {ratio:g} %, {mode}": growing(ratio, mode)
        for ratio, mode in zip(RATIOS_PCT, ("whole_region", "routed"), strict=True)
    },
    "tokens, nothing staged": broken,
    "tokens, padded rows": padded_rows,
    "decode, nothing offloaded": decode,
    "decode, routed": routed_decode,
    "prefill, nothing offloaded": prefill,
    "prefill, whole_region": offloaded(prefill, TIMED_PCT, "whole_region"),
    "prefill, routed": offloaded(prefill, TIMED_PCT, "routed"),
    "growth pause": growth_pause,
    "tokens, soak": soak,
    "table 2": table2,
}
