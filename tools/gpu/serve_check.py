"""`python -m tools.gpu.serve_check --out FILE`: `vamp serve` from a command line: up, answers, counts, and is gone.

Exit status 0 when all of it held; the JSON says what was seen.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from vamp.experiments.spec import make_spec
from vamp.live.plan import live_command, live_environment
from vamp.live.platform import load_live_platform
from vamp.live.server import free_port
from vamp.workloads.trace import FIRST_TOK

START_S, STOP_S, ANSWER_S = 400.0, 60.0, 120.0
GAUGES = ("vamp_kv_blocks", "vamp_offloaded_groups")
"""VAMP's counters have labels, and so no sample before their first increment."""
PROMPTS, PROMPT_TOK, OUTPUT_TOK = 8, 3000, 32


def get(url: str, body: dict[str, Any] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        return str(answer.read().decode())


def wait_until_up(url: str, server: subprocess.Popen[bytes]) -> float:
    """Seconds that it took. Raises RuntimeError: it ended, or took too long."""
    began_s = time.monotonic()
    while (took_s := time.monotonic() - began_s) < START_S:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode} after {took_s:.0f} s")
        try:
            get(f"{url}/health")
            return took_s
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"the server was not up after {START_S:.0f} s")


def in_session(session: int) -> list[str]:
    """Processes of that session that still live, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, _, own = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if own == str(session) and state not in "ZX":
            found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
    return found


def check(options: argparse.Namespace) -> dict[str, Any]:
    platform = load_live_platform(options.platform)
    spec = make_spec(
        backend=platform.backend,
        platform=platform.name,
        ratio_pct=options.ratio,
        workload={"kind": "inhouse", "concurrency": 1},
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = live_command(spec, platform, port, options.out.with_suffix(".decisions.jsonl"))
    seen: dict[str, Any] = {"platform": platform.label, "ratio_pct": options.ratio, "command": command}
    with options.out.with_suffix(".server.log").open("wb") as log:
        server = subprocess.Popen(
            command, env=live_environment(platform), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            seen["start_s"] = round(wait_until_up(url, server), 1)
            n_tok, span = min(PROMPT_TOK, platform.max_model_len // 2), platform.vocab_tok - FIRST_TOK
            prompts = [[FIRST_TOK + (i * n_tok + k) * 97 % span for k in range(n_tok)] for i in range(PROMPTS)]
            body = {"model": platform.model, "prompt": prompts, "max_tokens": OUTPUT_TOK, "ignore_eos": True}
            answer = json.loads(get(f"{url}/v1/completions", body))
            seen["output_tok"] = answer["usage"]["completion_tokens"]
            metrics = get(f"{url}/metrics")
            seen["metrics"] = [line for line in metrics.splitlines() if line.startswith("vamp_")]
        finally:
            began_s = time.monotonic()
            server.send_signal(signal.SIGTERM)
            try:
                seen["exit_status"] = server.wait(STOP_S)
            except subprocess.TimeoutExpired:
                seen["exit_status"] = "still there"
            seen["stop_s"] = round(time.monotonic() - began_s, 1)
            time.sleep(1.0)
            seen["left"] = in_session(server.pid)
            if seen["left"]:
                os.killpg(server.pid, signal.SIGKILL)
    named = {line.partition("{")[0].partition(" ")[0] for line in seen["metrics"]}
    expected = set(GAUGES) if options.ratio else set()
    seen["ok"] = seen["output_tok"] == PROMPTS * OUTPUT_TOK and not seen["left"] and named >= expected
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="h200_tp2_rank")
    parser.add_argument("--ratio", type=float, default=15.0)
    parser.add_argument("--out", type=Path, required=True, help="a JSON file; the server's log lies beside it")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is ended, too
    seen = check(options)
    options.out.write_text(json.dumps(seen, indent=1))
    print(json.dumps({name: value for name, value in seen.items() if name not in ("command", "metrics")}))
    print("\n".join(seen["metrics"][:12]))
    return 0 if seen["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
