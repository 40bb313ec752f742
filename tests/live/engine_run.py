"""`python -m tests.live.engine_run JOB OUT`: one engine start, several runs of one workload, a JSON file about them.

JOB is a JSON object: model (a folder), system ("plain" or "vamp"), base_blk, tp, page_bytes, and
runs: [{ratio_pct, mode, copies, refuse}] where refuse names a rank whose driver refuses to map pages.
The engine core lives in this process, so that the scheduler can be watched and moved between runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

ROUNDS, REQUESTS, OUTPUT_TOK = 3, 4, 16
ENGINE = {
    "load_format": "dummy",
    "skip_tokenizer_init": True,
    "dtype": "bfloat16",
    "max_model_len": 2048,
    "enable_prefix_caching": True,
    "enforce_eager": True,
    "mamba_ssm_cache_dtype": "float32",
    "max_num_seqs": REQUESTS,
    "max_num_batched_tokens": 1024,
    "kv_cache_memory_bytes": 2**28,
    "seed": 0,
}
FREE_OFFLOADING = {"c_reload_us": 0.0, "t_overhead_us": 0.0}
HIT_TOK = 10**6
"""Offloading costs nothing and past requests hit: when uncached blocks run short the pool grows, evicting nothing."""


def start(job: dict[str, Any]) -> Any:
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    if job["tp"] > 1:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    from vllm import LLM

    options: dict[str, Any] = {"worker_cls": "tests.live.workers.PlainWorker"}
    if job["system"] == "vamp":
        options = {
            "worker_cls": "tests.live.workers.VampWorker",
            "scheduler_cls": "vamp.engine.scheduler.make_scheduler",
            "additional_config": {
                "vamp": {"ratio_pct": 50, "vmm_page_bytes": job["page_bytes"], "cost": FREE_OFFLOADING}
            },
        }
    return LLM(
        model=job["model"],
        num_gpu_blocks_override=job["base_blk"],
        tensor_parallel_size=job["tp"],
        distributed_executor_backend="mp",
        **ENGINE,
        **options,
    )


def prompts(first: int) -> list[dict[str, list[int]]]:
    rng = random.Random(first)
    return [{"prompt_token_ids": [rng.randrange(3, 1000) for _ in range(1100 + 130 * i)]} for i in range(REQUESTS)]


class Engine:
    def __init__(self, job: dict[str, Any]) -> None:
        self.llm = start(job)
        self.scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        self.steps: list[list[int]] = []
        self.blocks: list[int] = []
        schedule = self.scheduler.schedule

        def watched(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self.steps.append(list(output.num_scheduled_tokens.values()))
            self.blocks.append(self.scheduler.kv_cache_manager.block_pool.num_gpu_blocks)
            return output

        self.scheduler.schedule = watched

    def set_up(self, ratio_pct: float, mode: str, copies: bool = True, refuse: int | None = None) -> None:
        """Back to nothing offloaded; from here the pool may grow up to this ratio."""
        controller = self.scheduler.vamp
        if not controller.restore(0):
            raise RuntimeError("blocks still in use")
        plan = controller.plan
        limit = plan.experts.max_groups(ratio_pct)
        controller.plan = dataclasses.replace(plan, limit_groups=limit)
        controller.hits.observe(HIT_TOK, HIT_TOK)
        controller._retry_step = 0
        self.llm.collective_rpc("refuse_maps", args=(refuse,))
        self.llm.collective_rpc("set_staging", args=(mode, copies))

    def run(self) -> dict[str, Any]:
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0, max_tokens=OUTPUT_TOK, detokenize=False, ignore_eos=True, logprobs=1)
        self.steps.clear()
        self.blocks.clear()
        tokens, logprobs = [], []
        for first in range(ROUNDS):
            for output in self.llm.generate(prompts(first), sampling, use_tqdm=False):
                completion = output.outputs[0]
                tokens.append(list(completion.token_ids))
                logprobs.append([next(iter(step.values())).logprob for step in completion.logprobs])
        result = {"tokens": tokens, "logprobs": logprobs, "steps": list(self.steps), "blocks": list(self.blocks)}
        if not self.llm.llm_engine.reset_prefix_cache():
            raise RuntimeError("requests hold blocks after the run")
        return result


def main(job: dict[str, Any], out: Path) -> None:
    engine = Engine(job)
    results = []
    for run in job["runs"]:
        if job["system"] == "plain":
            results.append(engine.run())
            continue
        engine.set_up(**run)
        result = engine.run()
        engine.llm.collective_rpc("check_memory")
        engine.scheduler.vamp.pool.check()
        stats = [dataclasses.asdict(s) for s in engine.llm.collective_rpc("vamp_stats")]
        controller = engine.scheduler.vamp
        facts = {
            "groups": controller.groups,
            "limit": controller.plan.limit_groups,
            "failed_remaps": controller.failed_remaps,
        }
        results.append(result | facts | {"ranks": stats})
    out.write_text(json.dumps(results))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
