from __future__ import annotations

import pandas as pd
import pytest

from vamp.measure.records import RequestRecord, RunResult
from vamp.measure.slo import qualified_per_s
from vamp.measure.window import Window

WINDOW = Window("full", 0.0, 10.0)


def one(*, ttft_s: float = 1.0, tpot_ms: float = 100.0, arrival_s: float = 0.0, **fields: object) -> RequestRecord:
    first_s = arrival_s + ttft_s
    record = RequestRecord("s", 0, 100, 11, arrival_s, first_token_s=first_s, finish_s=first_s + tpot_ms * 1e-2)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def q(*records: RequestRecord) -> float:
    frame: pd.DataFrame = RunResult.requests_frame(list(records))
    return qualified_per_s(frame, WINDOW, ttft_s=1.5, tpot_ms=150.0)


def test_both_limits_count() -> None:
    assert q(one(), one()) == pytest.approx(0.2)
    assert q(one(ttft_s=1.6)) == q(one(tpot_ms=151.0)) == 0
    assert q(one(ttft_s=1.5), one(tpot_ms=149.9)) == pytest.approx(0.2)


def test_late_failed_and_unfinished_are_misses() -> None:
    assert q(one(arrival_s=9.0)) == 0
    assert q(one(error="gave up")) == 0
    assert q(one(finish_s=None)) == q(one(first_token_s=None)) == 0


def test_a_reply_of_one_token_has_no_tpot() -> None:
    assert q(one(output_tok=1, finish_s=1.0)) == pytest.approx(0.1)
