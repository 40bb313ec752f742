"""`python -m tools.gpu.runs --kind replay --out FOLDER`: runs of the backend `cuda`, one by one, each kept at once.

After every run FOLDER/runs-KIND.tar has all runs of the store so far and FOLDER/runs-KIND.jsonl one more line, so that
a machine that goes away takes one run along at most. Unpack the tar and turn it into a recording with `vamp record`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tarfile
import tempfile
import time
from pathlib import Path

from vamp.errors import RunError
from vamp.experiments import table2_live
from vamp.experiments.ensure import ensure
from vamp.experiments.progress import describe
from vamp.experiments.spec import RunSpec, make_spec
from vamp.experiments.store import RunStore
from vamp.live.platform import load_live_platform
from vamp.measure.summary import summarise

SHOWN = ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_ms", "requests_per_s", "hit_rate_pct", "preemptions_per_1k")


def specs(options: argparse.Namespace) -> list[RunSpec]:
    """One level after another, so that what is done when time ends compares systems."""
    platform = load_live_platform(options.platform)
    ratios = [float(text) for text in options.ratios.split(",")]
    if options.kind == "fill":
        return [table2_live.spec(platform.backend, platform, ratio) for ratio in ratios]
    levels = [int(text) for text in options.concurrency.split(",")] if options.concurrency else list(platform.sweep)
    common = {"backend": platform.backend, "platform": platform.name, "seed": options.seed}
    if options.kind == "replay":
        return [make_spec(**common, ratio_pct=ratio, workload={"kind": "replay"}) for ratio in ratios]
    return [
        make_spec(**common, ratio_pct=ratio, workload={"kind": "inhouse", "concurrency": level})
        for level in levels
        for ratio in ratios
    ]


def one_run(spec: RunSpec) -> dict[str, object]:
    """Run it and print a short line."""
    began_s = time.monotonic()
    (result,) = ensure([spec], report=lambda line: print(line, flush=True))
    row = summarise(result, spec)
    line = {"run": describe(spec), "took_s": round(time.monotonic() - began_s, 1), **row.as_json()}
    line |= {name: result.meta.get(name) for name in ("server_start_s", "n_groups_max", "pool_blk", "wall_s")}
    shown = "  ".join(f"{name} {getattr(row, name):.4g}" for name in SHOWN)
    print(f"  {shown}  failed {row.failed}  pool_blk {line['pool_blk']}", flush=True)
    return line


def keep(store: RunStore, target: Path) -> None:
    """The whole store as one tar, replaced in one step."""
    part = target.with_suffix(".part")
    with tarfile.open(part, "w") as tar:
        for run in sorted(store.root.glob("[0-9a-f]*/run.json")):
            tar.add(run.parent, arcname=run.parent.name)
    part.replace(target)


def keep_logs(folder: Path) -> None:
    """What servers that failed left behind."""
    for log in Path(tempfile.gettempdir()).glob("vamp-server-*/server.log"):
        shutil.copyfile(log, folder / f"{log.parent.name}.log")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("replay", "inhouse", "fill"), required=True, help="fill: Table II's load")
    parser.add_argument("--platform", default="h200_tp2_rank")
    parser.add_argument("--ratios", default="0,15,20")
    parser.add_argument("--concurrency", help="in-house session counts; the platform's by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("VAMP_RUNS", str(Path(tempfile.gettempdir()) / "vamp-runs"))
    store, failed = RunStore(), 0
    for spec in specs(options):
        try:
            line = one_run(spec)
        except RunError as err:
            failed += 1
            print(f"{describe(spec)}: {err}", flush=True)
            keep_logs(options.out)
            continue
        keep(store, options.out / f"runs-{options.kind}.tar")
        with (options.out / f"runs-{options.kind}.jsonl").open("a") as lines:
            lines.write(json.dumps(line) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
