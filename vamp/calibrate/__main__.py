"""`python -m vamp.calibrate`: as `vamp calibrate`, on a bare GPU host without the command line's packages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vamp.calibrate.profile import write
from vamp.calibrate.run import calibrate
from vamp.errors import VampError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vamp.calibrate", description="Measure this host.")
    parser.add_argument("--out", type=Path, default=Path("calibration.json"))
    parser.add_argument("--model", type=Path, help="folder of a model whose steps are timed")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--load-format", default="dummy")
    given = parser.parse_args()
    try:
        profile = calibrate(given.model, quick=given.quick, load_format=given.load_format, report=print)
        write(profile, given.out)
    except VampError as err:
        print(f"vamp: {err}", file=sys.stderr)
        return 2
    for s in profile.steps:
        spread = f"{s.ms.median:.2f} ms ({s.ms.p10:.2f} to {s.ms.p90:.2f})"
        print(f"{s.kind} {s.prefill_tok} + {s.decode_seqs} tokens, {s.groups} groups {s.staging}: {spread}")
    for name, why in profile.failures.items():
        print(f"not measured: {name}: {why}")
    return 0 if profile.copies or profile.calls or profile.steps else 1


if __name__ == "__main__":
    sys.exit(main())
