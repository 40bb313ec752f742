"""`python -m tools.gpu.cliff --model FOLDER --system plain|vamp --out FILE`: sessions that outgrow the KV pool.

Closed loop without think time: every session sends its next turn as soon as it has its answer. Plain vLLM keeps the
pool it starts with; VAMP starts with the same one and grows on demand. The first number of sessions is run once before,
with four sessions, to warm up. Times are of turns after the first.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.gpu import WORKERS
from vamp.calibrate.engine import VOCABULARY, Engine, Job, with_depth

WARM_UP_SESSIONS = 4


@dataclass
class Session:
    history: list[int]
    turn: int = 0


@dataclass
class Turn:
    """One request; times in seconds of the same clock."""

    session: int
    turn: int
    prompt_tok: int
    sent_s: float
    first_s: float | None = None
    end_s: float = 0.0
    output_tok: int = 0
    cached_tok: int = 0

    @property
    def ttft_s(self) -> float:
        return (self.first_s or self.end_s) - self.sent_s

    @property
    def tpot_ms(self) -> float:
        return (self.end_s - (self.first_s or self.end_s)) * 1e3 / max(1, self.output_tok - 1)


@dataclass
class Load:
    """Attributes: tokens of the first prompt, of each later one, and of each answer."""

    turns: int
    first_tok: int
    growth_tok: int
    output_tok: int
    done: list[Turn] = field(default_factory=list)

    def run(self, engine: Engine, n_sessions: int, seed: int) -> float:
        """Fills `done`; returns the seconds it took."""
        rng, llm = random.Random(seed), engine.llm.llm_engine
        sampling = engine.sampling(self.output_tok)
        sessions = [Session(self._text(rng, self.first_tok)) for _ in range(n_sessions)]
        live: dict[str, Turn] = {}
        engine.reset()

        def send(i: int) -> None:
            one = sessions[i]
            name = f"{seed}-{n_sessions}-{i}-{one.turn}"
            llm.add_request(name, {"prompt_token_ids": list(one.history)}, sampling)
            live[name] = Turn(i, one.turn, len(one.history), time.perf_counter())

        started = time.perf_counter()
        for i in range(n_sessions):
            send(i)
        while live:
            for output in llm.step():
                turn = live.get(output.request_id)
                if turn is None:
                    continue
                now, answer = time.perf_counter(), output.outputs[0].token_ids
                if answer and turn.first_s is None:
                    turn.first_s = now
                if not output.finished:
                    continue
                turn.end_s, turn.output_tok, turn.cached_tok = now, len(answer), output.num_cached_tokens or 0
                self.done.append(live.pop(output.request_id))
                session = sessions[turn.session]
                session.history += [*answer, *self._text(rng, self.growth_tok)]
                session.turn += 1
                if session.turn < self.turns:
                    send(turn.session)
        return time.perf_counter() - started

    @staticmethod
    def _text(rng: random.Random, n_tok: int) -> list[int]:
        return [rng.randrange(*VOCABULARY) for _ in range(n_tok)]


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def summary(load: Load, wall_s: float) -> dict[str, float]:
    steady = [turn for turn in load.done if turn.turn > 0] or load.done
    ttft = [turn.ttft_s for turn in steady]
    return {
        "turns": len(load.done),
        "wall_s": wall_s,
        "requests_per_s": len(load.done) / wall_s,
        "output_tokens_per_s": sum(turn.output_tok for turn in load.done) / wall_s,
        "ttft_p50_s": quantile(ttft, 0.5),
        "ttft_p90_s": quantile(ttft, 0.9),
        "ttft_p99_s": quantile(ttft, 0.99),
        "tpot_ms": statistics.mean(turn.tpot_ms for turn in steady),
        "hit_rate_pct": 100 * sum(turn.cached_tok for turn in steady) / sum(turn.prompt_tok for turn in steady),
    }


def counters(engine: Engine) -> dict[str, int]:
    """Decisions by plan and steps by staging mode, so far."""
    decisions = {f"decided_{plan.name.lower()}": count for plan, count in engine.scheduler.vamp.counts.items()}
    return decisions | {f"steps_{mode}": count for mode, count in engine.memory._steps.items()}


def one_run(engine: Engine, options: argparse.Namespace, n_sessions: int) -> dict[str, Any]:
    before: dict[str, Any] = {}
    if engine.job.system == "vamp":
        engine.offload(0)
        before = counters(engine)
    engine.preempted = 0
    load = Load(options.turns, options.first_tok, options.growth_tok, options.output_tok)
    wall_s = load.run(engine, n_sessions, seed=n_sessions)
    row: dict[str, Any] = {"sessions": n_sessions, "system": engine.job.system, **summary(load, wall_s)}
    row |= {"preemptions": engine.preempted, "pool_blk": engine.pool.num_gpu_blocks, "steps": len(engine.scheduled)}
    if engine.job.system == "vamp":
        controller = engine.scheduler.vamp
        row |= {
            "groups": controller.groups,
            "offloaded_pct": 100 * controller.groups / engine.groups_at(100.0),
            **{name: count - before[name] for name, count in counters(engine).items()},
        }
    print(json.dumps(row), flush=True)
    return row | {"requests": [vars(turn) for turn in load.done]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a folder with config.json")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--system", choices=("plain", "vamp"), required=True)
    parser.add_argument("--sessions", type=lambda text: [int(n) for n in text.split(",")], default=[28, 40])
    parser.add_argument("--depth", type=int, help="layers; the model's own by default")
    parser.add_argument("--blocks", type=int, default=1288, help="KV blocks at start (1288 are 8.02 GiB at full depth)")
    parser.add_argument("--ratio-pct", type=float, default=25.0)
    parser.add_argument("--staging", default="auto", choices=("auto", "whole_region", "routed"))
    parser.add_argument("--cost", type=json.loads, default={}, help="coefficients as JSON; the paper's by default")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.7)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--first-tok", type=int, default=6000)
    parser.add_argument("--growth-tok", type=int, default=3000)
    parser.add_argument("--output-tok", type=int, default=64)
    options = parser.parse_args()
    started = time.perf_counter()
    job = Job(
        model=str(with_depth(options.model, options.depth)),
        system=options.system,
        blocks=options.blocks,
        **WORKERS,
        ratio_pct=options.ratio_pct,
        staging=options.staging,
        cost=options.cost,
        gpu_memory_utilization=options.gpu_memory_utilization,
    )
    engine = Engine(job)
    print(f"{job.system}: up in {time.perf_counter() - started:.1f} s", flush=True)
    Load(options.turns, options.first_tok, options.growth_tok, options.output_tok).run(engine, WARM_UP_SESSIONS, seed=1)
    rows = []
    for n_sessions in options.sessions:
        rows.append(one_run(engine, options, n_sessions))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        settings = {name: value for name, value in vars(options).items() if name not in ("model", "out")}
        options.out.write_text(json.dumps({"settings": settings, "runs": rows}))


if __name__ == "__main__":
    main()
