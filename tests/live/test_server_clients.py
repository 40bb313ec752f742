"""One live server, two witnesses: our client's times against the server's own histograms, and a public client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from vamp.experiments.spec import make_spec
from vamp.live.platform import load_live_platform
from vamp.live.run import live_command, live_environment
from vamp.live.server import LiveServer, free_port, serving
from vamp.workloads.client import Agreement, ClientOptions, Delta, agreement, fetch_metrics, replay_async
from vamp.workloads.inhouse import inhouse

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(900),
]
PLATFORM = load_live_platform("cpu_tiny_moe")
SESSIONS, GROWTH_TOK, OUTPUT_TOK = 8, 150, 16
"""More context than the pool holds, so that requests queue and TTFT is above half a second, where milliseconds of
HTTP do not matter."""
GAP_PCT = 5.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    tmp, port = tmp_path_factory.mktemp("server"), free_port()
    spec = make_spec(backend="cpu", platform=PLATFORM.name, workload={"kind": "inhouse", "concurrency": SESSIONS})
    command = live_command(spec, PLATFORM, port, tmp / "decisions.jsonl")
    with serving(command, live_environment(), tmp / "server.log", port=port) as server:
        yield server


async def measured(server: LiveServer) -> Agreement:
    options = ClientOptions(server.url, vocab_tok=PLATFORM.vocab_tok)
    await replay_async(inhouse(1, 64, 8, seed=1, scale=0.1), options)  # the first requests load and allocate
    before = await fetch_metrics(server.url)
    done = await replay_async(inhouse(SESSIONS, GROWTH_TOK, OUTPUT_TOK, seed=0), options)
    assert not done.failures and done.cached_tok_known
    return agreement(done.frame, Delta(before, await fetch_metrics(server.url)))


def test_client_and_server_agree(server: LiveServer) -> None:
    found = asyncio.run(measured(server))
    if found.ttft_server_s < 0.3:
        pytest.skip(f"mean TTFT is {found.ttft_server_s:.2f} s: too fast a machine for this load to compare clocks")
    print(found)
    assert abs(found.ttft_gap_pct) < GAP_PCT and abs(found.tpot_gap_pct) < GAP_PCT


def test_vllm_bench_drives_the_server(server: LiveServer, tmp_path: Path) -> None:
    """vLLM's own load generator; its module starts from the CPU wheel, `vllm bench` does not."""
    load = ["--num-prompts", "8", "--random-input-len", "200", "--random-output-len", "16", "--ignore-eos"]
    code = (
        "import argparse, sys; from vllm.benchmarks.serve import add_cli_args, main; "
        "parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "--backend", "vllm", "--base-url", server.url, "--model", PLATFORM.model]
    command += ["--tokenizer", str(PLATFORM.model_dir), "--dataset-name", "random", *load]
    done = subprocess.run(command, env=live_environment(), capture_output=True, text=True, timeout=400, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (line.partition(":") for line in done.stdout.splitlines())
    counts = {name.strip(): value.strip() for name, _, value in lines}
    assert counts["Successful requests"] == "8" and counts.get("Failed requests", "0") == "0"
