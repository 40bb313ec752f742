"""What a run leaves behind, whichever engine ran it. Times are seconds on that engine's clock since the run began."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pandas as pd

CUT = "under way when the run's time was up"
"""Error of a request that a run of fixed length ended: unfinished, not failed."""


@dataclass(slots=True)
class RequestRecord:
    """One request as the client saw it, with the server's queue time and cached tokens.

    Attributes:
        arrival_s: the client sent it.
        queued_s: the scheduler received it; between steps, so later than arrival_s by up to a step. vLLM's queue time
            is scheduled_s - queued_s.
        scheduled_s: first time the scheduler put it into a step; None if never.
        first_token_s, finish_s: None if never.
        cached_tok: prompt tokens served from the prefix cache at its first prefill.
        error: "" when it finished; otherwise why not. Failed requests are counted, never timed as zero.
    """

    session_id: str
    turn: int
    prompt_tok: int
    output_tok: int
    arrival_s: float
    queued_s: float | None = None
    scheduled_s: float | None = None
    first_token_s: float | None = None
    finish_s: float | None = None
    cached_tok: int = 0
    n_preemptions: int = 0
    error: str = ""


class TimelinePoint(NamedTuple):
    """Server state and cumulative counters at the end of a step (sampled, see `SimOptions.sample_every_steps`)."""

    t_s: float
    step: int
    running: int
    waiting: int
    pool_blk: int
    free_blk: int  # cached or not
    uncached_free_blk: int
    groups_offloaded: int
    queries_tok: int  # cumulative, as vLLM counts them: every admission attempt
    hits_tok: int
    preemptions: int
    output_tok: int
    compute_s: float  # cumulative
    exposed_staging_s: float
    step_tok: int = 0  # tokens of the step sampled


@dataclass(slots=True)
class RunResult:
    """Everything one run recorded.

    Attributes:
        requests: one row per `RequestRecord`, in order of arrival.
        timeline: one row per `TimelinePoint`.
        preemption_s: the time of every preemption.
        decisions: one dict per controller decision (vamp.policy.log.DecisionRecord).
        meta: scalars of the run: n_sessions, steps, wall_s, invocations, boundary_ratio_pct_mean, peak_rss_mib,
            virtual_s, n_groups_max, ...
    """

    requests: pd.DataFrame
    timeline: pd.DataFrame
    preemption_s: list[float] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def requests_frame(records: list[RequestRecord]) -> pd.DataFrame:
        return pd.DataFrame([asdict(r) for r in records], columns=list(RequestRecord.__slots__))

    @staticmethod
    def timeline_frame(points: list[TimelinePoint]) -> pd.DataFrame:
        return pd.DataFrame(points, columns=list(TimelinePoint._fields))
