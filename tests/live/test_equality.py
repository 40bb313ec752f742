"""A live engine with VAMP answers as plain vLLM does: tokens, logprobs and batch schedule, while its pool grows.

One engine start per model and system (a minute each on an idle machine); boundary and staging mode move live.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from vamp.paths import data_dir, root

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(1800),
]

PAGE_BYTES = 64 * 2**10
BASE_BLK = {"tiny-qwen3-next": 60, "tiny-qwen3-moe": 64}
MAX_BLK = {"tiny-qwen3-next": 108, "tiny-qwen3-moe": 100}
GROUPS = {0: 0, 15: 12, 25: 24, 50: 48}
"""Ratio in percent: experts of 32, rounded down, in each of 3 eligible layers."""
STAGED = [(ratio, mode) for ratio in (15, 25, 50) for mode in ("whole_region", "routed")]


def run_engine(tmp_path: Path, job: dict[str, Any]) -> list[dict[str, Any]]:
    """In a process of its own; its log is shown when it fails."""
    out, log = tmp_path / "out.json", tmp_path / "log.txt"
    # Without torch.compile a start is a minute shorter; without AMX, see workers.py.
    env = {**os.environ, "TORCH_COMPILE_DISABLE": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    command = [sys.executable, "-m", "tests.live.engine_run", json.dumps(job), str(out)]
    with log.open("w") as sink:
        done = subprocess.run(command, cwd=root(), env=env, stdout=sink, stderr=subprocess.STDOUT, timeout=1500)
    assert done.returncode == 0 and out.exists(), log.read_text()[-4000:]
    results: list[dict[str, Any]] = json.loads(out.read_text())
    return results


class Runs:
    """Plain vLLM's results, and VAMP's by (ratio, mode)."""

    def __init__(self, model: str, tmp: Path) -> None:
        job = {"model": str(data_dir() / "models" / model), "page_bytes": PAGE_BYTES, "tp": 1}
        plain = {"system": "plain", "base_blk": MAX_BLK[model], "runs": [{}, {}]}
        wanted = [(0, "whole_region"), *STAGED, (25, "auto")]
        runs = [{"ratio_pct": r, "mode": m, "copies": True} for r, m in wanted]
        broken = [{"ratio_pct": 50, "mode": m, "copies": False} for m in ("whole_region", "routed")]
        vamp = {"system": "vamp", "base_blk": BASE_BLK[model], "runs": runs + broken}
        self.model = model
        self.plain, self.plain_again = run_engine(tmp, job | plain)
        results = run_engine(tmp, job | vamp)
        self.vamp = dict(zip(wanted, results, strict=False))
        self.broken = results[len(wanted) :]


@pytest.fixture(scope="module", params=sorted(BASE_BLK))
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(request.param, tmp_path_factory.mktemp(request.param))


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(a[key] == b[key] for key in ("steps", "tokens", "logprobs"))


def test_plain_vllm_repeats_itself(runs: Runs) -> None:
    """What follows compares bit by bit; that makes sense only if this holds."""
    assert same(runs.plain, runs.plain_again)


def test_the_weights_matter(runs: Runs) -> None:
    """Not the uniform distribution that unscaled dummy weights give."""
    assert len({round(p, 3) for p in runs.plain["logprobs"][0]}) > 1
    assert len({t for tokens in runs.plain["tokens"] for t in tokens}) > 1


@pytest.mark.parametrize(("ratio", "mode"), [(0, "whole_region"), *STAGED, (25, "auto")])
def test_vamp_answers_as_plain_vllm(runs: Runs, ratio: int, mode: str) -> None:
    got = runs.vamp[ratio, mode]
    assert got["groups"] == GROUPS[ratio]
    assert got["blocks"][0] == BASE_BLK[runs.model]
    if ratio:
        assert got["blocks"][-1] > got["blocks"][0] and len(set(got["blocks"])) > 2  # it grew while it ran
    assert same(got, runs.plain)


@pytest.mark.parametrize(("ratio", "mode"), STAGED)
def test_the_mode_that_was_asked_for_ran(runs: Runs, ratio: int, mode: str) -> None:
    order = list(runs.vamp)
    before = runs.vamp[order[order.index((ratio, mode)) - 1]]["ranks"][0]
    now = runs.vamp[ratio, mode]["ranks"][0]
    other = "routed" if mode == "whole_region" else "whole_region"
    assert now["steps"][mode] > before["steps"][mode] and now["steps"][other] == before["steps"][other]
    assert now["staged_bytes"] > before["staged_bytes"]


def test_host_copies_never_change(runs: Runs) -> None:
    assert len({run["ranks"][0]["host_checksum"] for run in [*runs.vamp.values(), *runs.broken]}) == 1


def test_without_staging_the_answers_differ(runs: Runs) -> None:
    """The negative control: the same runs with the copies switched off."""
    for run in runs.broken:
        assert run["groups"] == GROUPS[50]
        assert run["steps"] == runs.plain["steps"] and run["logprobs"] != runs.plain["logprobs"]
