"""Which part of a run is measured (section VI-A, "Measurement intervals").

replay   `interval`: from the completion of the 128th turn until the first session completes after all
         sessions have started, so without warm-up and without the drain.
inhouse  `steady`: the whole run, but TTFT and queue time without each session's first turn, which no cache
         can serve.
trace    `full`: the whole run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from vamp.experiments.spec import RunSpec
from vamp.measure.latency import finished
from vamp.measure.records import RunResult

PAPER_WARMUP_TURNS = 128
PAPER_TURNS = 2103

WindowName = Literal["interval", "steady", "full"]


@dataclass(frozen=True, slots=True)
class Window:
    """A closed stretch [start_s, end_s] of the run's clock.

    Attributes:
        note: what differs from the paper's rule; "" when nothing does.
    """

    name: WindowName
    start_s: float
    end_s: float
    note: str = ""

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    def arrived(self, requests: pd.DataFrame) -> pd.DataFrame:
        """Requests sent inside the window."""
        return requests[requests["arrival_s"].between(self.start_s, self.end_s)]

    def timed(self, requests: pd.DataFrame) -> pd.DataFrame:
        """Requests whose TTFT and queue time count: `arrived`, without first turns if steady."""
        inside = self.arrived(requests)
        return inside[inside["turn"] > 0] if self.name == "steady" else inside

    def completed(self, requests: pd.DataFrame) -> pd.DataFrame:
        """Requests that finished inside the window, whenever they were sent."""
        done = finished(requests)
        return done[done["finish_s"].between(self.start_s, self.end_s)]


def window_for(result: RunResult, spec: RunSpec) -> Window:
    """The paper's window for this kind of workload."""
    if spec.workload.kind == "replay":
        return interval_window(result)
    return steady_window(result) if spec.workload.kind == "inhouse" else full_window(result)


def full_window(result: RunResult) -> Window:
    """From the first arrival to the last event; NaN bounds when nothing arrived."""
    return Window("full", *_bounds(result))


def steady_window(result: RunResult) -> Window:
    return Window("steady", *_bounds(result))


def interval_window(result: RunResult) -> Window:
    """The replay interval. Falls back to the full run, and says so, when a run is too short to have one."""
    warmup, note = _warmup_turns(result)
    start_s, end_s = _completion_s(result.requests, warmup), _first_exit_s(result.requests)
    if start_s < end_s:
        return Window("interval", start_s, end_s, note)
    whole = _bounds(result)
    return Window("full", *whole, "the replay interval of section VI-A is empty in this run: the full run is measured")


def _warmup_turns(result: RunResult) -> tuple[int, str]:
    """128 completed turns; fewer, in proportion, when the run is shorter than the paper's 2,103 turns."""
    n_turns = int(result.meta.get("n_turns", len(result.requests)))
    if n_turns >= PAPER_TURNS:
        return PAPER_WARMUP_TURNS, ""
    warmup = max(1, round(PAPER_WARMUP_TURNS * n_turns / PAPER_TURNS))
    return (
        warmup,
        f"starts after {warmup} completed turns of {n_turns} (paper: {PAPER_WARMUP_TURNS} of {PAPER_TURNS})",
    )


def _completion_s(requests: pd.DataFrame, nth: int) -> float:
    """When the nth request finished; NaN if fewer did."""
    times = np.sort(finished(requests)["finish_s"].to_numpy(dtype=np.float64))
    return float(times[nth - 1]) if len(times) >= nth else float("nan")


def _first_exit_s(requests: pd.DataFrame) -> float:
    """When the first session completed once all had started; NaN if none did.

    A session with a failed or unfinished request never completes.
    """
    if requests.empty:
        return float("nan")
    all_started_s = requests.groupby("session_id")["arrival_s"].min().max()
    marked = requests.assign(
        ok=requests.index.isin(finished(requests).index), finish_s=pd.to_numeric(requests["finish_s"])
    )
    by_session = marked.groupby("session_id").agg(ok=("ok", "all"), end_s=("finish_s", "max"))
    ends = by_session.loc[by_session["ok"] & (by_session["end_s"] >= all_started_s), "end_s"]
    return float(ends.min()) if len(ends) else float("nan")


def _bounds(result: RunResult) -> tuple[float, float]:
    req = result.requests
    if req.empty:
        return float("nan"), float("nan")
    ends = [req["arrival_s"].max(), pd.to_numeric(req["finish_s"]).max()]
    if len(result.timeline):
        ends.append(result.timeline["t_s"].max())
    return float(req["arrival_s"].min()), float(np.nanmax(ends))
