"""An engine in this process, so that its scheduler and its worker can be watched and moved between runs."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

VOCABULARY = (3, 75_000)
FREE_OFFLOADING = {"c_reload_us": 0.0, "t_overhead_us": 0.0}
HIT_TOK = 10**6
"""With free offloading and requests that hit, the pool grows when uncached blocks run short, and evicts nothing."""
ON_CPU = {"enforce_eager": True, "mamba_ssm_cache_dtype": "float32", "kv_cache_memory_bytes": 2**28}
WARM_STEPS = 8
"""Decode steps that are not timed."""


@dataclass(frozen=True)
class Job:
    """Attributes:
    ratio_pct: VAMP's limit.
    blocks: KV blocks at start.
    plain_worker, vamp_worker: class names; None takes the platform's.
    on_cpu: eager, as the CPU build needs it; plain vLLM only.
    """

    model: str
    system: str
    blocks: int
    ratio_pct: float = 25.0
    staging: str = "auto"
    cost: dict[str, float] | None = None
    gpu_memory_utilization: float = 0.7
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 8192
    max_model_len: int = 65_536
    plain_worker: str | None = None
    vamp_worker: str = "vamp.engine.worker_cuda.VampCUDAWorker"
    on_cpu: bool = False
    load_format: str = "dummy"
    enforce_eager: bool = False

    def options(self) -> dict[str, Any]:
        """Of vLLM, for the device of this host."""
        own: dict[str, Any] = {"worker_cls": self.plain_worker} if self.plain_worker else {}
        if self.system == "vamp":
            vamp = {"ratio_pct": self.ratio_pct, "staging": self.staging, "cost": self.cost or {}}
            own = {
                "worker_cls": self.vamp_worker,
                "scheduler_cls": "vamp.engine.scheduler.make_scheduler",
                "additional_config": {"vamp": vamp},
            }
        return {
            "model": self.model,
            "num_gpu_blocks_override": self.blocks,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_model_len": self.max_model_len,
            "enforce_eager": self.enforce_eager,
            "load_format": self.load_format,
            "skip_tokenizer_init": True,
            "dtype": "bfloat16",
            "enable_prefix_caching": True,
            "disable_log_stats": True,
            "seed": 0,
            **(ON_CPU if self.on_cpu else self._on_cuda()),
            **own,
        }

    def _on_cuda(self) -> dict[str, Any]:
        """As data/live/h200_tp2_rank.yaml has it, so that all share one compile cache."""
        return {
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "gdn_prefill_backend": "triton",
            "moe_backend": "triton",
        }


def with_depth(model: Path, depth: int | None) -> Path:
    """A folder beside the model's with its configuration at another number of layers."""
    config = json.loads((model / "config.json").read_text())
    if depth is None or depth == config["num_hidden_layers"]:
        return model
    config["num_hidden_layers"] = depth
    shallow = model.parent / f"{model.name}-{depth}-layers"
    shallow.mkdir(exist_ok=True)
    (shallow / "config.json").write_text(json.dumps(config, indent=1))
    return shallow


def prompt(n_tok: int, seed: int, vocab_tok: int = VOCABULARY[1]) -> dict[str, list[int]]:
    """Made-up tokens below `vocab_tok`."""
    rng = random.Random(seed)
    return {"prompt_token_ids": [rng.randrange(VOCABULARY[0], vocab_tok) for _ in range(n_tok)]}


@dataclass(frozen=True)
class Step:
    """What one call of the engine's step gave: when it returned, and how many requests got a token."""

    end_s: float
    n_outputs: int


class Engine:
    """Attributes:
    scheduler, worker: the live objects.
    scheduled: tokens of each request in each scheduled step, since `forget_steps`.
    """

    def __init__(self, job: Job) -> None:
        os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
        from vllm import LLM

        self.job = job
        self.llm = LLM(**job.options())
        core = self.llm.llm_engine.engine_core.engine_core
        self.scheduler, self._executor = core.scheduler, core.model_executor
        self.scheduled: list[list[int]] = []
        self.preempted = 0
        self._runs = 0
        self._watch()

    def _watch(self) -> None:
        schedule, preempt = self.scheduler.schedule, self.scheduler._preempt_request

        def watched(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            if output.num_scheduled_tokens:
                self.scheduled.append(list(output.num_scheduled_tokens.values()))
            return output

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.preempted += 1
            return preempt(*args, **kwargs)

        self.scheduler.schedule, self.scheduler._preempt_request = watched, counted

    @property
    def worker(self) -> Any:
        """In this process, where the executor runs it here (one GPU)."""
        return self._executor.driver_worker.worker

    def prompt(self, n_tok: int, seed: int) -> dict[str, list[int]]:
        """Made-up tokens of this model's vocabulary."""
        vocab_tok = self.llm.llm_engine.vllm_config.model_config.hf_text_config.vocab_size
        return prompt(n_tok, seed, min(vocab_tok, VOCABULARY[1]))

    @property
    def pool(self) -> Any:
        return self.scheduler.kv_cache_manager.block_pool

    def sampling(self, out_tok: int) -> Any:
        from vllm import SamplingParams

        return SamplingParams(temperature=0, max_tokens=out_tok, ignore_eos=True, detokenize=False)

    def tokens(
        self, prompts: Sequence[dict[str, list[int]]], out_tok: int, free_blk: int | None = None
    ) -> dict[str, Any]:
        """Greedy answers, and the schedule that led to them; the prefix cache is empty before and after.

        Args:
            free_blk: all free blocks but so many are held back meanwhile.
        """
        self.reset()
        held = [] if free_blk is None else self.pool.get_new_blocks(self.pool.get_num_free_blocks() - free_blk)
        try:
            outputs = self.llm.generate(list(prompts), self.sampling(out_tok), use_tqdm=False)
        finally:
            self.pool.free_blocks(held)
        self._empty_cache()
        return {
            "tokens": [list(output.outputs[0].token_ids) for output in outputs],
            "scheduled": list(self.scheduled),
            "blocks": self.pool.num_gpu_blocks,
        }

    def drive(
        self,
        prompts: Sequence[dict[str, list[int]]],
        out_tok: int,
        before_step: Callable[[int], None] = lambda n_full: None,
    ) -> list[Step]:
        """Step by step; `before_step` is told how many steps have given every request a token."""
        self.reset()
        engine, self._runs = self.llm.llm_engine, self._runs + 1
        for i, one in enumerate(prompts):
            engine.add_request(f"{self._runs}-{i}", one, self.sampling(out_tok))
        steps: list[Step] = []
        full = 0
        while engine.has_unfinished_requests():
            before_step(full)
            outputs = engine.step()
            if outputs:
                steps.append(Step(time.perf_counter(), len(outputs)))
                full += len(outputs) == len(prompts)
        self._empty_cache()
        return steps

    def decode_ms(self, n: int, out_tok: int = 64, prompt_tok: int = 512) -> dict[str, float]:
        """A decode step with n requests running: median and mean of the time between two results."""
        steps = self.drive([prompt(prompt_tok, 1000 * n + i) for i in range(n)], out_tok)
        times = intervals_ms(steps, n)[WARM_STEPS:-2]
        return {"n": n, "median_ms": statistics.median(times), "mean_ms": statistics.mean(times), "steps": len(times)}

    def prefill_ms(self, n_tok: int, repeats: int = 3) -> dict[str, Any]:
        """From handing in one prompt to its first token; median, after one that is not counted."""
        times, scheduled = [], []
        for repeat in range(repeats + 1):
            self.reset()
            started = time.perf_counter()
            steps = self.drive([prompt(n_tok, 77 * n_tok + repeat)], 1)
            times.append((steps[-1].end_s - started) * 1e3)
            scheduled = list(self.scheduled)
        return {"n_tok": n_tok, "median_ms": statistics.median(times[1:]), "scheduled": scheduled}

    def reset(self) -> None:
        """An empty prefix cache and schedule.

        Raises:
            RuntimeError: requests hold blocks.
        """
        self._empty_cache()
        self.scheduled.clear()

    def _empty_cache(self) -> None:
        if not self.llm.llm_engine.reset_prefix_cache():
            raise RuntimeError("requests hold blocks; the prefix cache cannot be emptied")

    # VAMP's side

    @property
    def memory(self) -> Any:
        return self.worker.vamp

    def offload(self, groups: int) -> None:
        """Have exactly so many groups offloaded, whatever it was before.

        Raises:
            RuntimeError: the boundary could not be moved.
        """
        self.reset()
        controller = self.scheduler.vamp
        if not controller.restore(0) or (groups and not controller._move(groups)):
            raise RuntimeError(f"the boundary could not be moved to {groups} groups")
        self.memory.leave()  # now, and not in the next forward pass

    def groups_at(self, ratio_pct: float) -> int:
        groups: int = self.memory.remapper.layout.plan.experts.max_groups(ratio_pct)
        return groups

    @contextmanager
    def growing(self, ratio_pct: float) -> Iterator[None]:
        """Nothing offloaded at first, and growth up to the ratio whenever blocks run short."""
        self.offload(0)
        controller, plan = self.scheduler.vamp, self.memory.remapper.layout.plan
        controller.plan = dataclasses.replace(plan, limit_groups=self.groups_at(ratio_pct))
        controller.hits.observe(HIT_TOK, HIT_TOK)
        try:
            yield
        finally:
            controller.plan = plan
            self.offload(0)


def intervals_ms(steps: Sequence[Step], n: int) -> list[float]:
    """Between steps that both gave all n requests a token."""
    return [(b.end_s - a.end_s) * 1e3 for a, b in pairwise(steps) if a.n_outputs == b.n_outputs == n]
