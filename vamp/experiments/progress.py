"""How far a batch of runs is: counted in the workers, read by whoever shows it.

Workers write to a `Board` in shared memory, which cannot block or break when one of them is killed. The
parent turns it into a `Progress` and hands that to a callback and to the file named by
`$VAMP_PROGRESS_FILE`, where the command line watches notebooks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from vamp.experiments.spec import RunSpec

PROGRESS_FILE = "VAMP_PROGRESS_FILE"


@dataclass(frozen=True, slots=True)
class Progress:
    """Runs and turns so far. `turns_total` covers runs that have started; `fraction` covers all, 0..1."""

    done: int
    total: int
    turns_done: int
    turns_total: int
    fraction: float


class Board:
    """One row per run, (worker's process id, turns done, turns total), shared with the workers."""

    def __init__(self, context: SpawnContext, n_runs: int) -> None:
        self._rows: Any = context.RawArray("q", 3 * n_runs)

    def claim(self, row: int, pid: int) -> None:
        self._rows[3 * row] = pid

    def set_turns(self, row: int, done: int, total: int) -> None:
        self._rows[3 * row + 1], self._rows[3 * row + 2] = done, total

    def pid(self, row: int) -> int:
        """The worker that took this run; 0 when none has."""
        return int(self._rows[3 * row])

    def progress(self, finished: Sequence[bool], n_stored: int) -> Progress:
        """`finished[row]` marks runs that ended; `n_stored` runs needed no run at all."""
        turns = [(self._rows[3 * row + 1], self._rows[3 * row + 2]) for row in range(len(finished))]
        shares = [1.0 if end else d / t if t else 0.0 for end, (d, t) in zip(finished, turns, strict=True)]
        total = n_stored + len(finished)
        return Progress(
            done=n_stored + sum(finished),
            total=total,
            turns_done=sum(d for d, _ in turns),
            turns_total=sum(t for _, t in turns),
            fraction=(n_stored + sum(shares)) / total if total else 1.0,
        )


def publish(progress: Progress) -> None:
    """Write to `$VAMP_PROGRESS_FILE`, if set. A display that cannot be written never stops a run."""
    target = os.environ.get(PROGRESS_FILE)
    if not target:
        return
    temp = Path(f"{target}.{os.getpid()}")
    try:
        temp.write_text(json.dumps(asdict(progress)), encoding="utf-8")
        temp.replace(target)
    except OSError:
        temp.unlink(missing_ok=True)


def read_progress(path: Path) -> Progress | None:
    """What `publish` wrote; None when nothing is there yet."""
    try:
        return Progress(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def describe(spec: RunSpec) -> str:
    """A run in a few words, for messages: `VAMP-15 h100_pcie_tp2 inhouse c=24 seed 0`."""
    load = spec.workload
    words = [spec.system, spec.platform, load.kind]
    if load.trace_path:
        words.append(Path(load.trace_path).name)
    if load.concurrency:
        words.append(f"c={load.concurrency}")
    return " ".join([*words, f"seed {spec.seed}"])
