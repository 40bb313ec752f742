"""`python -m tools.gpu.engine_check --model FOLDER --out FOLDER [--depth 12]`: VAMP beside plain vLLM on one device.

Plain vLLM, plain vLLM in a second process, VAMP: one engine start each; boundary and staging mode move live. Every
phase prints one line; one that fails does not stop the others. Writes plain.json, again.json, vamp.json, summary.json
and logs. Exit status 0 if all phases ran, answers are equal wherever plain vLLM repeats itself, and no memory was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tools.gpu import WORKERS, phases
from tools.gpu.summary import summarize
from vamp.calibrate.engine import FREE_OFFLOADING, Engine, Job, with_depth

SYSTEMS = {"plain": phases.PLAIN, "again": phases.AGAIN, "vamp": phases.VAMP}


def run_system(options: argparse.Namespace) -> int:
    """In this process: all phases of one system."""
    started, out = time.perf_counter(), options.out / f"{options.child}.json"
    job = Job(
        model=str(with_depth(options.model, options.depth)),
        system="vamp" if options.child == "vamp" else "plain",
        blocks=options.blocks,
        **WORKERS,
        cost=FREE_OFFLOADING,
        gpu_memory_utilization=options.gpu_memory_utilization,
    )
    engine = Engine(job)
    results: dict[str, Any] = {"start_s": time.perf_counter() - started, "depth": options.depth, "blocks": job.blocks}
    print(f"{options.child}: up in {results['start_s']:.1f} s", flush=True)
    failed = 0
    for name, phase in SYSTEMS[options.child].items():
        if options.only and not any(re.search(part, name) for part in options.only):
            continue
        started = time.perf_counter()
        try:
            results[name] = phase(engine)
            note = ""
        except Exception as err:  # the other phases still count
            traceback.print_exc()
            results[name] = {"error": f"{type(err).__name__}: {err}"}
            failed, note = failed + 1, f" FAILED: {type(err).__name__}: {err}".splitlines()[0]
        print(f"{options.child}: {name}: {time.perf_counter() - started:.1f} s{note}", flush=True)
        _write(out, results)
    return 1 if failed else 0


def run_child(options: argparse.Namespace, system: str) -> int:
    command = [sys.executable, "-m", "tools.gpu.engine_check", *sys.argv[1:], "--child", system]
    log = options.out / f"{system}.log"
    env = {**os.environ, "VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_USE_V2_MODEL_RUNNER": "0"}
    with log.open("w") as sink:
        status = subprocess.run(command, stderr=sink, env=env).returncode
    if status:
        print(f"{system}: exit status {status}; the end of {log}:\n{log.read_text()[-2500:]}", flush=True)
    return status


def _write(path: Path, value: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a folder with config.json")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--depth", type=int, help="layers; the model's own by default")
    parser.add_argument("--blocks", type=int, default=1288, help="KV blocks at start (1288 are 8.02 GiB at full depth)")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.7)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="all by default")
    parser.add_argument("--only", action="append", help="phases whose name matches this; repeatable")
    parser.add_argument("--child", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.child:
        return run_system(options)
    with_depth(options.model, options.depth)
    status = max(run_child(options, system) for system in options.system or SYSTEMS)
    found = {path.stem: json.loads(path.read_text()) for path in options.out.glob("*.json") if path.stem in SYSTEMS}
    if set(found) == set(SYSTEMS):
        summary = summarize(found["plain"], found["again"], found["vamp"])
        _write(options.out / "summary.json", summary)
        print("\n".join(summary["lines"]), flush=True)
        status = status or int(not (summary["equal"] and summary["steady"]))
    return status


if __name__ == "__main__":
    sys.exit(main())
