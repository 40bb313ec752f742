"""A tiny engine in place of the simulator, for tests of the runner.

The seed says what a run does, and $STUB_LOG gets one line per run that started, so that tests can count them.
"""

import os
import signal
import time
from pathlib import Path

DIES, REFUSES, BREAKS, HANGS, SLOW, SLOWER, LASTS, LASTS_TOO = range(101, 109)


def run_spec(spec, progress=lambda done, total: None):
    from vamp.errors import CapacityError
    from vamp.measure.records import RequestRecord, RunResult, TimelinePoint

    with Path(os.environ["STUB_LOG"]).open("a") as log:
        log.write(f"{spec.seed} {os.getpid()} {os.environ.get('OMP_NUM_THREADS')} {time.monotonic()}\n")
    if spec.seed == DIES:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    if spec.seed == REFUSES:
        raise CapacityError("session 'x' needs 10 tokens, more than the pool's 5")
    if spec.seed == BREAKS:
        raise ZeroDivisionError("an engine defect")
    if spec.seed == HANGS:
        progress(1, 4)
        time.sleep(300)
    if spec.seed in (LASTS, LASTS_TOO) and Path(os.environ["STUB_LOG"]).read_text().count(f"{spec.seed} ") == 1:
        time.sleep(15)  # only when it is started for the first time
    if spec.seed in (SLOW, SLOWER):
        time.sleep(1.0)
    progress(2, 2)
    requests = [RequestRecord("s", t, 10, 5, float(t), t + 0.0, t + 0.1, t + 0.2, t + 0.6) for t in range(2)]
    return RunResult(
        RunResult.requests_frame(requests),
        RunResult.timeline_frame([TimelinePoint(2.0, 5, 0, 0, 9, 9, 9, 0, 20, 5, 0, 10, 0.5, 0.0)]),
        decisions=[],
        meta={
            "label": "stub",
            "virtual_s": 2.0,
            "wall_s": 0.1,
            "n_turns": 2,
            "n_sessions": 1,
            "seed": spec.seed,
        },
    )
