"""`python -m vamp.doctor [MODEL]`: as `vamp doctor`, on a bare GPU host without the command line's packages."""

from __future__ import annotations

import sys
from pathlib import Path

from vamp.doctor.checks import can_run, examine
from vamp.doctor.gather import gather


def main() -> int:
    findings = examine(gather(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
    print("\n".join(finding.line for finding in findings))
    return 0 if can_run(findings) else 1


if __name__ == "__main__":
    sys.exit(main())
