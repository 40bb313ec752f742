"""`python -m vamp.calibrate.steps JOB OUT`: model steps of one engine, timed. JOB: a Job as JSON, and "quick".

Decode steps follow each other, so the time between two results is a step. A prompt's step stands between decode steps
of background requests and is timed as what it adds to a stretch of them: where the host launches kernels one by one the
result of a step is seen only after the launches of the next, so single intervals would blame the wrong step.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from vamp.calibrate.engine import Engine, Job

DECODE_N = (1, 4, 8, 16, 32, 64)
PROMPT_TOK = 512
BETWEEN_STEPS = 8
"""Decode steps before a prompt is sent, and after: enough that no step of one stretch reaches into the next."""
BACKGROUND = 4
"""Requests that decode meanwhile."""
ROUTED_PCT = 15.0
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """A step's result: when it came, and what the step computed: (tokens, tokens attended to) of each request."""

    at_s: float
    loads: tuple[tuple[int, int], ...]

    @property
    def prefill_tok(self) -> int:
        return sum(n for n, _ in self.loads if n > 1)

    @property
    def decode_seqs(self) -> int:
        return sum(n == 1 for n, _ in self.loads)

    @property
    def context_tok(self) -> int:
        return sum(context for _, context in self.loads)

    @property
    def pairs(self) -> int:
        return sum(n * (context - n // 2) for n, context in self.loads if n > 1)


class Watch:
    """Every step with tokens, in order, since `clear`."""

    def __init__(self, scheduler: Any) -> None:
        self.seen: list[Seen] = []
        self._loads: dict[int, tuple[tuple[int, int], ...]] = {}
        schedule, update = scheduler.schedule, scheduler.update_from_output

        def scheduled(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            requests = scheduler.requests
            self._loads[id(output)] = tuple(
                (n, requests[name].num_computed_tokens) for name, n in output.num_scheduled_tokens.items()
            )
            return output

        def updated(output: Any, *args: Any, **kwargs: Any) -> Any:
            result = update(output, *args, **kwargs)
            loads = self._loads.pop(id(output), ())
            if loads:
                self.seen.append(Seen(time.perf_counter(), loads))
            return result

        scheduler.schedule, scheduler.update_from_output = scheduled, updated

    def clear(self) -> None:
        self.seen.clear()


def decode_rows(engine: Engine, watch: Watch, sizes: Sequence[int], out_tok: int) -> list[Row]:
    """Decode steps of n requests with short contexts."""
    return [_decode_row(engine, watch, n, out_tok) for n in sizes]


def _decode_row(
    engine: Engine, watch: Watch, n: int, out_tok: int, before_step: Callable[[int], None] = lambda n_full: None
) -> Row:
    watch.clear()
    engine.drive([engine.prompt(PROMPT_TOK, 1000 * n + i) for i in range(n)], out_tok, before_step)
    steady = [s for s in watch.seen if s.decode_seqs == n and not s.prefill_tok][8:]
    middle = steady[len(steady) // 2]
    times = [(b.at_s - a.at_s) * 1e3 for a, b in pairwise(steady)]
    return _row("decode", middle, times)


def _row(kind: str, load: Seen, times_ms: list[float], **more: Any) -> Row:
    names = ("prefill_tok", "decode_seqs", "context_tok", "pairs")
    return {"kind": kind, "times_ms": times_ms, **{name: getattr(load, name) for name in names}, **more}


def mixed_rows(engine: Engine, watch: Watch, shapes: Sequence[tuple[int, int]], repeats: int) -> list[Row]:
    """Steps of so many prompt tokens after so many cached ones, beside a few decoding requests."""
    return [_mixed_row(engine, watch, n_tok, context_tok, repeats) for n_tok, context_tok in shapes]


def _mixed_row(engine: Engine, watch: Watch, n_tok: int, context_tok: int, repeats: int) -> Row:
    llm = engine.llm.llm_engine
    engine.reset()
    texts = [engine.prompt(context_tok + n_tok, 7919 * n_tok + context_tok + i) for i in range(repeats + 1)]
    if context_tok:  # the tail makes a chunk end at the block border, where states are cached
        engine.llm.generate(
            [{"prompt_token_ids": t["prompt_token_ids"][: context_tok + 16]} for t in texts],
            engine.sampling(1),
            use_tqdm=False,
        )
    out_tok = (repeats + 2) * 3 * BETWEEN_STEPS
    for i in range(BACKGROUND):
        llm.add_request(f"background-{i}", engine.prompt(PROMPT_TOK, 31 + i), engine.sampling(out_tok))
    watch.clear()
    _decode_only(llm, watch, 2 * BETWEEN_STEPS)
    stretches = []
    for i, text in enumerate(texts):
        first = len(watch.seen)
        llm.add_request(f"prompt-{n_tok}-{context_tok}-{i}", text, engine.sampling(1))
        _decode_only(llm, watch, BETWEEN_STEPS, wait_for_prompt=True)
        stretches.append(watch.seen[first - BETWEEN_STEPS :])
    while llm.has_unfinished_requests():
        llm.step()
    return _mixed(stretches[1:])


def _decode_only(llm: Any, watch: Watch, steps: int, wait_for_prompt: bool = False) -> None:
    """Until so many steps have had no prompt tokens, after one that had if asked for."""
    first, count = len(watch.seen), 0
    while count < steps and llm.has_unfinished_requests():
        llm.step()
        new = watch.seen[first:]
        last = max((i for i, s in enumerate(new) if s.prefill_tok), default=None)
        count = 0 if wait_for_prompt and last is None else len(new) - 1 - (-1 if last is None else last)


def _mixed(stretches: list[list[Seen]]) -> Row:
    """What a prompt's steps take: the stretch less its decode steps, whose median is known from its own ends."""
    times, steps = [], []
    for stretch in stretches:
        at = [i for i, s in enumerate(stretch) if s.prefill_tok]
        edge = [(b.at_s - a.at_s) for a, b in pairwise(stretch[: at[0] - 2])]
        edge += [(b.at_s - a.at_s) for a, b in pairwise(stretch[at[-1] + 3 :])]
        decode_s = sorted(edge)[len(edge) // 2]
        whole_s = stretch[-1].at_s - stretch[0].at_s
        times.append((whole_s - (len(stretch) - 1 - len(at)) * decode_s) * 1e3)
        steps.append([stretch[i] for i in at])
    loads = tuple(load for step in steps[-1] for load in step.loads)
    return _row("mixed", Seen(0.0, loads), times, n_steps=len(steps[-1]))


def offloaded(engine: Engine, staging: str, measure: Callable[[], list[Row]]) -> list[Row]:
    """The rows with 15 % offloaded and steps outside graphs staged that way; bytes from the rank's counters."""
    engine.memory.mode = staging
    groups = engine.groups_at(ROUTED_PCT)
    engine.offload(groups)
    try:
        rows = measure()
        group_bytes = engine.memory.remapper.layout.plan.experts.group_bytes
        for row in rows:
            whole = groups * group_bytes if staging == "whole_region" else 0.0
            row |= {"groups": groups, "staging": staging, "staged_bytes": row.get("staged_bytes", whole)}
        return rows
    finally:
        engine.offload(0)


def routed_rows(engine: Engine, watch: Watch, sizes: Sequence[int], out_tok: int) -> list[Row]:
    """Decode steps, and the bytes that the staging kernel counted in them."""
    routed, shard_bytes = engine.memory.routed, engine.memory.remapper.layout.plan.experts.shard_bytes
    rows = []
    for n in sizes:
        counting = False

        def count(full: int) -> None:
            nonlocal counting
            if full >= 4 and not counting:  # all prompts are done
                routed.forget_counts()
                counting = True

        row = _decode_row(engine, watch, n, out_tok, count)
        row["staged_bytes"] = sum(routed.staged_shards()) * shard_bytes / max(1, max(routed.launches()))
        rows.append(row)
    return rows


def measure(engine: Engine, block_tok: int, quick: bool, write: Callable[[str, Any], None]) -> None:
    """All phases; one that fails is noted and does not stop the others."""
    watch, vamp = Watch(engine.scheduler), engine.job.system == "vamp"
    sizes = [n for n in (DECODE_N if not quick else (1, 4, 8, 64)) if n <= engine.job.max_num_seqs]
    out_tok, repeats = (24, 3) if quick else (64, 7)
    longest = (engine.job.max_num_batched_tokens - BACKGROUND) // block_tok * block_tok
    lengths = sorted({min(longest, -(-n // block_tok) * block_tok) for n in (1024, 2048, 4096, 8192)})
    fits = min(engine.job.max_model_len, (engine.job.blocks - 40) * block_tok // 2) - longest - 32
    contexts = [c // block_tok * block_tok for c in (8192, 24_576) if c <= fits and not quick]
    shapes = [(n, 0) for n in lengths] + [(lengths[-1], c) for c in contexts]

    def phase(name: str, work: Callable[[], list[Row]]) -> None:
        started = time.perf_counter()
        try:
            write(name, work())
        except Exception as err:  # the other phases still count
            traceback.print_exc()
            write("failures", {name: f"{type(err).__name__}: {err}".splitlines()[0]})
        print(f"{name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)

    for n in sizes:  # kernels are compiled and tuned at their first use
        engine.drive([engine.prompt(PROMPT_TOK, n + i) for i in range(n)], 12)
    phase("decode", lambda: decode_rows(engine, watch, sizes, out_tok))
    phase("mixed", lambda: mixed_rows(engine, watch, shapes, repeats))
    if vamp:
        phase("decode, routed", lambda: offloaded(engine, "routed", lambda: routed_rows(engine, watch, sizes, out_tok)))
        whole = [(n, 0) for n in lengths[-2:]]
        phase(
            "mixed, whole regions",
            lambda: offloaded(engine, "whole_region", lambda: mixed_rows(engine, watch, whole, repeats)),
        )


def facts(engine: Engine) -> dict[str, Any]:
    """What the profile says of the model."""
    config = engine.llm.llm_engine.vllm_config
    hf, compilation = config.model_config.hf_text_config, config.compilation_config
    graphs = not config.model_config.enforce_eager
    return {
        "folder": Path(engine.job.model).name,
        "pool_blk": engine.pool.num_gpu_blocks,
        "max_num_seqs": engine.job.max_num_seqs,
        "max_num_batched_tokens": engine.job.max_num_batched_tokens,
        "graph_tok": int(compilation.max_cudagraph_capture_size or 0) if graphs else 0,
        "load_format": engine.job.load_format,
        "top_k": hf.num_experts_per_tok,
        "n_experts": hf.num_experts,
    }


def main() -> None:
    given, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    quick = given.pop("quick")
    engine = Engine(Job(**given))
    results: dict[str, Any] = {"model": facts(engine), "failures": {}}

    def write(name: str, value: Any) -> None:
        if name == "failures":
            results["failures"] |= value
        else:
            results[name] = value
        part = out.with_suffix(".part")
        part.write_text(json.dumps(results))
        part.replace(out)

    block_tok = engine.llm.llm_engine.vllm_config.cache_config.block_size
    measure(engine, int(block_tok), quick, write)
    sys.stderr.flush()
    os._exit(0)  # results are written; tearing an engine down takes long and may fail


if __name__ == "__main__":
    main()
