"""`python -m tools.gpu.check_driver [--out FILE]`: is the CUDA memory half right here, and what does it cost?

Runs tests/gpu, then measures copies and remaps. No vLLM; under a minute. Exit status 0 if every test passed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from vamp.calibrate import rig as rigs
from vamp.calibrate.memory import all_costs
from vamp.paths import root


def measure() -> dict[str, Any]:
    started = time.perf_counter()
    rig = rigs.build(rigs.wide())
    built_s = time.perf_counter() - started
    try:
        costs = all_costs(rig)
        costs["build_s"] = built_s
        costs["host_copies_gib"] = rig.copier.weights.nbytes / 2**30
        return costs
    finally:
        rig.close()


def table(costs: dict[str, Any]) -> str:
    lines = [
        f"moved in: {costs['build_s']:.2f} s, host copies {costs['host_copies_gib']:.2f} GiB",
        f"copy engine: whole region {costs['bulk_gb_per_s']:.1f} GB/s, one expert {costs['bulk_one_expert_us']:.0f} us",
    ]
    lines += [f"routed, nothing offloaded, {n} ids: {us:.2f} us a launch" for n, us in costs["idle_us"].items()]
    lines.append(f"the same, disabled in the graph: {costs['disabled_us']:.2f} us a launch")
    lines += [
        f"routed, {row['experts']:3.0f} experts: {row['us']:8.1f} us {row['gb_per_s']:5.1f} GB/s, "
        f"{row['over_bulk']:.2f}x the copy engine"
        for row in costs["routed"]
    ]
    lines += [
        f"remap of {n} groups: grow {ms['grow']:.2f} ms, restore {ms['restore']:.2f} ms"
        for n, ms in costs["remap_ms"].items()
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to write the numbers as JSON")
    parser.add_argument("--no-tests", action="store_true", help="measure only")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("check_driver: no CUDA device here", file=sys.stderr)
        return 1
    status = 0
    if not options.no_tests:
        status = int(
            pytest.main([str(root() / "tests" / "gpu"), "-q", "--maxfail=6", "--tb=short", "-p", "no:cacheprovider"])
        )
    costs = measure()
    costs["device"], costs["tests_passed"] = torch.cuda.get_device_name(), status == 0
    print(table(costs))
    print(json.dumps(costs))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(costs, indent=1))
    return status


if __name__ == "__main__":
    sys.exit(main())
