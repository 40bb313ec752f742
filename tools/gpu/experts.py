"""`python -m tools.gpu.experts --model FOLDER --out FILE`: distinct experts per layer that one step needs.

Up to 64 sessions decode while others prefill in chunks; after the router of every layer the union of the routed experts
of the step is counted on the device. Plain vLLM, eager, so that the count sees every step: routing does not depend on
CUDA graphs, times would, and are not taken. With random weights routing is close to uniform: these are not the
numbers of a trained model.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tools.gpu import WORKERS
from tools.gpu.cliff import Load
from tools.gpu.environment import environment
from vamp.calibrate.engine import Engine, Job
from vamp.engine.expert_access_cuda import kernels_of, watch
from vamp.engine.moe_layers import moe_layers

LABEL = "distinct routed experts per layer and step, one H200, one TP2 rank's shape, random weights, eager"


@dataclass
class Counter:
    """Attributes:
    counts: (steps, layers), distinct experts, on the device: nothing waits for it.
    tokens: of each step, padding included.
    """

    n_layers: int
    n_experts: int
    max_steps: int
    tokens: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = torch.zeros((self.max_steps, self.n_layers), dtype=torch.int32, device="cuda")

    def before_experts(self, layer: int, experts: torch.Tensor) -> None:
        if layer == 0:
            self.tokens.append(int(experts.shape[0]))
        step = len(self.tokens) - 1
        if step < self.max_steps:
            hit = torch.zeros(self.n_experts, dtype=torch.int32, device=experts.device)
            hit[experts.flatten().long()] = 1
            self.counts[step, layer] = hit.sum()

    def before_down(self, layer: int) -> None:
        pass

    def after_experts(self, layer: int) -> None:
        pass

    def rows(self, lowest_tok: int, highest_tok: int) -> dict[str, Any]:
        """Statistics of the steps with so many tokens, by layer."""
        n = min(len(self.tokens), self.max_steps)
        tokens = torch.tensor(self.tokens[:n], device="cpu")
        kept = (tokens >= lowest_tok) & (tokens <= highest_tok)
        chosen = self.counts[:n].cpu()[kept].double()
        if not len(chosen):
            return {"steps": 0, "layers": []}
        layers = [
            {"layer": i, "mean": float(c.mean()), "p50": float(c.quantile(0.5)), "max": int(c.max())}
            for i, c in enumerate(chosen.unbind(1))
        ]
        return {"steps": len(chosen), "tokens_per_step_mean": float(tokens[kept].double().mean()), "layers": layers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a folder with config.json")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=14)
    parser.add_argument("--first-tok", type=int, default=2000)
    parser.add_argument("--growth-tok", type=int, default=400)
    parser.add_argument("--output-tok", type=int, default=64)
    options = parser.parse_args()
    job = Job(
        model=str(options.model),
        system="plain",
        blocks=1288,
        **WORKERS,
        max_num_seqs=options.sessions,
        enforce_eager=True,
    )
    engine = Engine(job)
    hf = json.loads((options.model / "config.json").read_text())
    context = engine.worker.compilation_config.static_forward_context
    runners = moe_layers(context, hf["num_hidden_layers"], kernels_of)
    counter = Counter(len(runners), hf["num_experts"], options.steps)
    watch(runners, counter)
    Load(options.turns, options.first_tok, options.growth_tok, options.output_tok).run(engine, options.sessions, seed=0)
    found = {
        "what": "Fig. 11 on the real engine: how many experts one step needs",
        "label": LABEL,
        "command": f"python -m tools.gpu.experts --steps {options.steps}",
        "environment": environment(),
        "settings": {name: value for name, value in vars(options).items() if name not in ("model", "out")},
        "n_experts": hf["num_experts"],
        "top_k": hf["num_experts_per_tok"],
        "tokens": counter.tokens[: options.steps],
        "all": counter.rows(1, 10**9),
        "decode": counter.rows(1, options.sessions),
        "mixed": counter.rows(options.sessions + 1, 10**9),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found))
    for part in ("decode", "mixed", "all"):
        rows = found[part]
        means = [row["mean"] for row in rows["layers"]]
        print(part, rows["steps"], "steps, mean over layers", sum(means) / len(means) if means else None, flush=True)


if __name__ == "__main__":
    main()
