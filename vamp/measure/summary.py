"""One run in one row: what `vamp run --json` prints and the tables average."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from vamp.experiments.spec import RunSpec
from vamp.measure import hit_rate, latency
from vamp.measure.records import RunResult
from vamp.measure.window import Window, window_for


@dataclass(frozen=True, slots=True)
class Summary:
    """Section VI-A's metrics of one run. NaN where there was nothing to measure.

    Attributes:
        requests: requests that arrived inside the window.
        failed: of these, the ones that failed or never finished.
        unfinished: of these, the ones that the end of a run of fixed length cut off; not failed.
        ttft_p50_s, ttft_p90_s, ttft_p99_s, queue_mean_s: over finished requests that arrived inside the
            window; the steady rule leaves out first turns.
        tpot_ms: mean over the full run, as the paper has it for the replay.
        output_tokens_per_s, requests_per_s: server output tokens, and completed requests, over the window's
            duration.
        hit_rate_pct: server counters over the window (the paper's); hit_rate_per_request_pct: cached over
            prompt tokens.
        preemptions_per_1k: preemptions of the requests that arrived inside the window, per 1,000 of them; of a live
            server, which does not say whose they are, the preemptions inside the window.
        n_preemptions: all of the run.
        boundary_ratio_pct_mean: mean offloaded share of the experts, percent, full run.
        decisions: the controller's choices by plan, full run.
    """

    requests: int
    failed: int
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    queue_mean_s: float
    tpot_ms: float
    output_tokens_per_s: float
    requests_per_s: float
    hit_rate_pct: float
    preemptions_per_1k: float
    boundary_ratio_pct_mean: float
    hit_rate_per_request_pct: float
    n_preemptions: int
    decisions: dict[str, int]
    window: str
    window_start_s: float
    window_end_s: float
    window_note: str
    unfinished: int = 0

    def as_json(self) -> dict[str, Any]:
        """Plain values; NaN becomes null."""
        return {key: _null_if_nan(value) for key, value in asdict(self).items()}


def summarise(result: RunResult, spec: RunSpec, window: Window | None = None) -> Summary:
    """Measure one run over `window`, by default the paper's for this kind of workload (`window_for`)."""
    win = window or window_for(result, spec)
    inside, timed = win.arrived(result.requests), win.timed(result.requests)
    p50, p90, p99 = latency.percentiles(latency.ttft_s(timed), (50, 90, 99))
    return Summary(
        requests=len(inside),
        failed=latency.n_failed(inside),
        ttft_p50_s=p50,
        ttft_p90_s=p90,
        ttft_p99_s=p99,
        queue_mean_s=latency.mean(latency.queue_s(timed)),
        tpot_ms=latency.mean(latency.tpot_ms(result.requests)),
        output_tokens_per_s=_per(hit_rate.counter_delta(result.timeline, "output_tok", win), win.duration_s),
        requests_per_s=_per(len(win.completed(result.requests)), win.duration_s),
        hit_rate_pct=hit_rate.counter_hit_rate_pct(result.timeline, win),
        preemptions_per_1k=_per(1000.0 * _n_preemptions(result, win), len(inside)),
        boundary_ratio_pct_mean=float(result.meta.get("boundary_ratio_pct_mean", math.nan)),
        hit_rate_per_request_pct=hit_rate.request_hit_rate_pct(inside),
        n_preemptions=len(result.preemption_s),
        decisions=dict(Counter(str(record.get("choice") or "none") for record in result.decisions)),
        window=win.name,
        window_start_s=win.start_s,
        window_end_s=win.end_s,
        window_note=win.note,
        unfinished=latency.n_cut(inside),
    )


def _n_preemptions(result: RunResult, win: Window) -> float:
    if result.meta.get("preemptions_by") == "server":
        return sum(win.start_s <= t_s <= win.end_s for t_s in result.preemption_s)
    return float(win.arrived(result.requests)["n_preemptions"].sum())


def _per(amount: float, denominator: float) -> float:
    return amount / denominator if denominator > 0 else math.nan


def _null_if_nan(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
