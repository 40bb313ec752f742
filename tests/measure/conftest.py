"""Small runs made by hand: the numbers in them are chosen so that every expected value can be worked out."""

from collections.abc import Callable

import pytest

from vamp.measure.records import RequestRecord, RunResult, TimelinePoint

Turn = tuple[float, float, float]  # arrival, first token, finish; seconds


def request(session: str, turn: int, arrival_s: float, ttft_s: float, decode_s: float, **more: object) -> RequestRecord:
    """A finished request of 100 prompt and 11 output tokens, received at once, then queued for half its TTFT."""
    values: dict[str, object] = {
        "prompt_tok": 100,
        "output_tok": 11,
        "queued_s": arrival_s,
        "scheduled_s": arrival_s + ttft_s / 2,
        "first_token_s": arrival_s + ttft_s,
        "finish_s": arrival_s + ttft_s + decode_s,
        **more,
    }
    return RequestRecord(session, turn, arrival_s=arrival_s, **values)  # type: ignore[arg-type]


def lost(session: str, turn: int, arrival_s: float, error: str = "HTTP 500") -> RequestRecord:
    return RequestRecord(session, turn, 100, 11, arrival_s, error=error)


def point(t_s: float, *, queries: int = 0, hits: int = 0, output: int = 0, preemptions: int = 0) -> TimelinePoint:
    return TimelinePoint(t_s, 0, 0, 0, 10, 5, 5, 0, queries, hits, preemptions, output, 0.0, 0.0)


def result(requests: list[RequestRecord], timeline: list[TimelinePoint] | None = None, **meta: object) -> RunResult:
    return RunResult(RunResult.requests_frame(requests), RunResult.timeline_frame(timeline or []), meta=dict(meta))


@pytest.fixture
def sessions_of() -> Callable[[int, int], list[RequestRecord]]:
    """`sessions_of(n, turns)`: session i starts at second i; a turn is 1 s of prefill, 1 s of decode."""

    def build(n: int, turns: int) -> list[RequestRecord]:
        rows = [request(f"s{i}", t, i + 2.0 * t, 1.0, 1.0) for i in range(n) for t in range(turns)]
        return sorted(rows, key=lambda r: r.arrival_s)

    return build
