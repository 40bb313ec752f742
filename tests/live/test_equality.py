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

from vamp.engine.cpu_host import ENVIRONMENT
from vamp.paths import data_dir, root

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(1800),
]

PAGE_BYTES = 64 * 2**10
BASE_BLK = {"tiny-qwen3-next": 60, "tiny-qwen3-moe": 64}
PLAIN_BLK = {"tiny-qwen3-next": 108, "tiny-qwen3-moe": 100}
"""As many as VAMP can reach at 50 %, so that both schedule alike."""
STAGED = [(ratio, mode) for ratio in (15, 25, 50) for mode in ("whole_region", "routed")]
WANTED = [(0, "whole_region"), *STAGED, (25, "auto")]


def run_engine(tmp_path: Path, job: dict[str, Any]) -> list[dict[str, Any]]:
    """In a process of its own; its log is shown when it fails."""
    out, log = tmp_path / "out.json", tmp_path / f"{job['system']}.log"
    env = {**ENVIRONMENT, **os.environ}
    command = [sys.executable, "-m", "tests.live.engine_run", json.dumps(job), str(out)]
    with log.open("w") as sink:
        done = subprocess.run(command, cwd=root(), env=env, stdout=sink, stderr=subprocess.STDOUT, timeout=1500)
    assert done.returncode == 0 and out.exists(), log.read_text()[-4000:]
    results: list[dict[str, Any]] = json.loads(out.read_text())
    return results


class Runs:
    """Plain vLLM's results, and VAMP's by (ratio, mode)."""

    def __init__(self, model: str, tp: int, tmp: Path) -> None:
        job = {"model": str(data_dir() / "models" / model), "page_bytes": PAGE_BYTES, "tp": tp}
        plain = {"system": "plain", "base_blk": PLAIN_BLK[model], "runs": [{}, {}]}
        runs: list[dict[str, Any]] = [{"ratio_pct": r, "mode": m} for r, m in WANTED]
        broken = [{"ratio_pct": 50, "mode": m, "copies": False} for m in ("whole_region", "routed")]
        refused = [{"ratio_pct": 50, "mode": "routed", "refuse": tp - 1}, {"ratio_pct": 50, "mode": "routed"}]
        vamp = {"system": "vamp", "base_blk": BASE_BLK[model], "runs": runs + refused + broken}
        self.model, self.tp = model, tp
        self.plain, self.plain_again = run_engine(tmp, job | plain)
        results = run_engine(tmp, job | vamp)
        self.vamp = dict(zip(WANTED, results, strict=False))
        self.refused, self.after_refusal = results[len(WANTED) : len(WANTED) + 2]
        self.broken = results[len(WANTED) + 2 :]
        self.log = (tmp / "vamp.log").read_text()


@pytest.fixture(scope="module", params=[(model, tp) for model in sorted(BASE_BLK) for tp in (1, 2)], ids=str)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    model, tp = request.param
    if tp > len(os.sched_getaffinity(0)):
        pytest.skip(f"TP = {tp} on the CPU binds each rank to a core of its own; this machine has fewer")
    return Runs(model, tp, tmp_path_factory.mktemp(f"{model}-tp{tp}"))


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(a[key] == b[key] for key in ("steps", "tokens", "logprobs"))


def test_plain_vllm_repeats_itself(runs: Runs) -> None:
    """What follows compares bit by bit; that makes sense only if this holds."""
    assert same(runs.plain, runs.plain_again)


def test_the_weights_matter(runs: Runs) -> None:
    """Not the uniform distribution that unscaled dummy weights give."""
    assert len({round(p, 3) for p in runs.plain["logprobs"][0]}) > 1
    assert len({t for tokens in runs.plain["tokens"] for t in tokens}) > 1


@pytest.mark.parametrize(("ratio", "mode"), WANTED)
def test_vamp_answers_as_plain_vllm(runs: Runs, ratio: int, mode: str) -> None:
    got = runs.vamp[ratio, mode]
    assert got["groups"] == got["limit"] and (got["limit"] > 0) == (ratio > 0)
    assert got["blocks"][0] == BASE_BLK[runs.model]
    if ratio:
        assert got["blocks"][-1] > got["blocks"][0] and got["blocks"] == sorted(got["blocks"])  # it grew while it ran
    assert [rank["n_groups"] for rank in got["ranks"]] == [got["groups"]] * runs.tp
    assert same(got, runs.plain)


@pytest.mark.parametrize(("ratio", "mode"), STAGED)
def test_the_mode_that_was_asked_for_ran(runs: Runs, ratio: int, mode: str) -> None:
    order = list(runs.vamp)
    other = "routed" if mode == "whole_region" else "whole_region"
    ranks = zip(runs.vamp[order[order.index((ratio, mode)) - 1]]["ranks"], runs.vamp[ratio, mode]["ranks"], strict=True)
    for before, now in ranks:
        assert now["steps"][mode] > before["steps"][mode] and now["steps"][other] == before["steps"][other]
        assert now["staged_bytes"] > before["staged_bytes"]


def test_host_copies_never_change(runs: Runs) -> None:
    results = [*runs.vamp.values(), runs.refused, runs.after_refusal, *runs.broken]
    for rank in range(runs.tp):
        assert len({result["ranks"][rank]["host_checksum"] for result in results}) == 1


def test_a_rank_that_cannot_map_makes_no_rank_commit_and_serving_goes_on(runs: Runs) -> None:
    got = runs.refused
    assert got["failed_remaps"] > 0
    assert set(got["blocks"]) == {BASE_BLK[runs.model]}
    assert [rank["n_groups"] for rank in got["ranks"]] == [0] * runs.tp
    assert all(rank["failed"] > 0 for rank in got["ranks"])
    assert all(len(tokens) == len(runs.plain["tokens"][0]) for tokens in got["tokens"])  # every request was finished
    assert f"rank {runs.tp - 1}: " in runs.log and "serving goes on without" in runs.log


def test_the_next_remap_after_a_failed_one_works(runs: Runs) -> None:
    assert runs.after_refusal["groups"] == runs.after_refusal["limit"] > 0
    assert same(runs.after_refusal, runs.plain)


def test_without_staging_the_answers_differ(runs: Runs) -> None:
    """The negative control: the same runs with the copies switched off."""
    for run in runs.broken:
        assert run["groups"] == run["limit"] > 0
        assert run["steps"] == runs.plain["steps"] and run["logprobs"] != runs.plain["logprobs"]
