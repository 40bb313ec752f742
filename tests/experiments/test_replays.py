from __future__ import annotations

import math

import pandas as pd
import pytest

from tests.experiments.made_up import run
from vamp.errors import ConfigError
from vamp.experiments import fig7, fig8, fig10a, fig10b, replays, table4
from vamp.experiments.replays import ComparisonParameters, ReplayParameters


def test_notebooks_share_their_runs() -> None:
    """Figs. 7, 8 and 10 add VAMP-10 and VAMP-20 to the runs of Table IV and nothing else."""
    known = {s.model_dump_json() for s in table4.specs(table4.Params.check())}
    assert {s.model_dump_json() for s in fig7.specs(fig7.Params.check())} == known
    compared = {s.model_dump_json() for s in fig10a.specs(fig10a.Params.check())}
    assert {s.model_dump_json() for s in fig10b.specs(fig10b.Params.check())} == compared
    assert known < compared and len(compared) == 8
    assert {s.model_dump_json() for s in fig8.specs(fig8.Params.check())} < compared


def test_a_missing_trace_is_refused() -> None:
    with pytest.raises(ConfigError, match="/no/such does not exist"):
        ReplayParameters.check(trace="/no/such")


def test_why_nothing_is_compared() -> None:
    assert ComparisonParameters.check(ratios=[0, 15]).needs(0, 15) == ""
    assert "ratio 10, 20 was not run" in ComparisonParameters.check(ratios=[0, 15]).needs(10, 15, 20)
    assert ComparisonParameters.check(ratios=[0], scale=0.5).needs(0).startswith("scale 0.5")
    assert ReplayParameters.check(trace=".").why_not == "another trace than the paper's"


def test_latencies_of_finished_requests() -> None:
    specs = table4.specs(table4.Params.check(repeats=1))
    runs = [run(s, ttft_s=2.0, tpot_ms=50.0) for s in specs]
    runs[0].requests.loc[0, "error"] = "gave up"
    runs[1].requests.loc[0, "output_tok"] = 1
    rows = replays.finished_rows(specs, runs)
    assert len(rows) == 2 * 20 - 1
    assert rows["ttft_s"].tolist() == pytest.approx([2.0] * 39)
    assert rows["tpot_ms"].dropna().tolist() == pytest.approx([50.0] * 38)


def test_percentiles_are_of_each_run_and_then_averaged() -> None:
    rows = pd.DataFrame(
        {
            "system": "vLLM",
            "turn": 3,
            "seed": [0] * 3 + [1] * 3,
            "session_id": ["a", "b", "c"] * 2,
            "ttft_s": [1.0, 2.0, 30.0, 5.0, 6.0, 70.0],
        }
    )
    (got,) = replays.ttft_by(rows, "turn", 50).to_dict("records")
    assert got == {"system": "vLLM", "turn": 3, "ttft_s": 4.0, "sd": pytest.approx(math.sqrt(8)), "n": 2, "sessions": 3}
