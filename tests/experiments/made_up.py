"""Runs that nobody ran: test data with chosen latencies, for the per-notebook logic."""

from __future__ import annotations

from typing import Any

from vamp.experiments.spec import RunSpec
from vamp.measure.records import RequestRecord, RunResult, TimelinePoint


def run(
    spec: RunSpec,
    *,
    ttft_s: float = 1.0,
    queue_s: float = 0.1,
    tpot_ms: float = 100.0,
    hit_pct: float = 50.0,
    preemptions: int = 0,
    sessions: int = 4,
    turns: int = 5,
    decisions: list[dict[str, Any]] | None = None,
) -> RunResult:
    """Sessions side by side; every request of a run has the same latencies."""
    records, output_tok = [], 11
    length_s = ttft_s + tpot_ms * 1e-3 * (output_tok - 1)
    for s in range(sessions):
        for turn in range(turns):
            arrival = turn * (length_s + 1.0) + 0.01 * s
            records.append(
                RequestRecord(
                    session_id=f"s{s}",
                    turn=turn,
                    prompt_tok=1000,
                    output_tok=output_tok,
                    arrival_s=arrival,
                    queued_s=arrival,
                    scheduled_s=arrival + queue_s,
                    first_token_s=arrival + ttft_s,
                    finish_s=arrival + length_s,
                    cached_tok=int(10 * hit_pct),
                    n_preemptions=preemptions,
                )
            )
    end_s = max(r.finish_s or 0.0 for r in records)
    points = [_point(end_s * i / 20, i, hit_pct, preemptions, len(records)) for i in range(21)]
    invocations = len(decisions or [])
    return RunResult(
        requests=RunResult.requests_frame(sorted(records, key=lambda r: r.arrival_s)),
        timeline=RunResult.timeline_frame(points),
        preemption_s=[1.0] * preemptions * len(records),
        decisions=decisions or [],
        meta={"n_turns": len(records), "stand_in": True, "invocations": invocations, "n_groups_max": 4},
    )


def _point(t_s: float, i: int, hit_pct: float, preemptions: int, n: int) -> TimelinePoint:
    return TimelinePoint(
        t_s=t_s,
        step=i,
        running=1,
        waiting=0,
        pool_blk=1288 + i,
        free_blk=10,
        uncached_free_blk=5,
        groups_offloaded=i,
        queries_tok=1000 * i,
        hits_tok=round(10 * hit_pct * i),
        preemptions=preemptions * n * i // 20,
        output_tok=110 * i,
        compute_s=t_s,
        exposed_staging_s=0.0,
    )


def decision(choice: str | None, **costs_us: float | None) -> dict[str, Any]:
    """A decision record with the costs given by their short names: c, e, p, b."""
    names = {"C_c_us": "c", "C_e_us": "e", "C_p_us": "p", "C_b_us": "b"}
    return {
        "step": 1,
        "t_s": 1.0,
        "request_id": "r",
        "choice": choice,
        "pool_before_blk": 10,
        "pool_after_blk": 14,
        **{key: costs_us.get(short) for key, short in names.items()},
    }
