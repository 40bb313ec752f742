"""Recorded sessions become specs of the same run; what is off by more than the limit is said."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from tests.report.conftest import checkout  # noqa: F401
from vamp.errors import ConfigError
from vamp.experiments import simcheck
from vamp.measure.records import RunResult
from vamp.workloads import build_trace

P = simcheck.Params.check()
REAL = simcheck.recorded(P)


def as_simulated(slower: float = 1.0) -> list[RunResult]:
    """What was recorded, as if simulated, with every TTFT that many times longer."""
    out = []
    for one in REAL:
        requests = one.requests.copy()
        longer = (requests["first_token_s"] - requests["arrival_s"]) * (slower - 1)
        requests[["first_token_s", "finish_s"]] = requests[["first_token_s", "finish_s"]].add(longer, axis=0)
        meta = {
            "steps": one.facts["steps"],
            "pool_blk": one.facts["pool_blk"],
            "decisions": {"offload": one.facts["offloads"], "evict": one.facts["evictions"]},
        }
        preemptions = [0.0] * one.facts["preemptions"]
        out.append(RunResult(requests, pd.DataFrame(), preemption_s=preemptions, meta=meta))
    return out


def test_the_workload_is_the_recorded_one() -> None:
    for one in REAL:
        trace = build_trace(one.spec.workload, seed=0, growth_tok=1, output_tok=1)
        for session in trace.sessions:
            own = one.requests[one.requests["session_id"] == session.session_id].sort_values("turn")
            assert own["prompt_tok"].tolist() == [t.prompt_tok for t in session.turns]
            assert own["output_tok"].tolist() == [t.output_tok for t in session.turns]


def test_quantities_are_those_of_the_recording() -> None:
    """data/recorded's own summaries; percentiles there are not interpolated."""
    tpot = {one.label: simcheck.quantities(one.requests)["TPOT, ms"] for one in REAL}
    assert tpot == pytest.approx(
        {
            "vLLM, 28 sessions": 78.305,
            "vLLM, 40 sessions": 111.242,
            "VAMP-25, 28 sessions": 68.307,
            "VAMP-25, 40 sessions": 121.841,
        },
        rel=1e-3,
    )
    assert REAL[0].requests["arrival_s"].min() == 0


def test_the_same_twice_is_within() -> None:
    rows = simcheck.comparison(REAL, as_simulated())
    assert rows["ratio"].tolist() == pytest.approx([1.0] * len(rows))
    assert "not" not in simcheck.verdict_lines(rows) and simcheck.verdict_lines(rows).count("4 of 4") == 4


def test_what_is_off_is_named() -> None:
    rows = simcheck.comparison(REAL, as_simulated(slower=1.25))
    lines = simcheck.verdict_lines(rows).splitlines()
    assert lines[0].startswith("TTFT p50: 0 of 4 within 20 %; not: vLLM, 28 sessions")
    assert lines[2] == "TPOT: 4 of 4 within 20 %"
    table = simcheck.table(rows)
    assert table.loc[table["quantity"] == "TTFT p90, s", "ratio"].tolist() == ["1.25"] * 4


def test_a_count_that_was_zero_and_is_not_has_no_ratio() -> None:
    runs = as_simulated()
    runs[1].preemption_s.append(1.0)
    rows = simcheck.comparison(REAL, runs).set_index(["run", "quantity"])
    assert pd.isna(rows.loc[("vLLM, 40 sessions", "preemptions"), "ratio"])
    assert rows.loc[("VAMP-25, 40 sessions", "preemptions"), "ratio"] == 1.0


@pytest.mark.parametrize("name", ["nothing", "h200_memory"])
def test_what_is_no_recording_of_sessions_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="h200_tp2_rank_cliff"):
        simcheck.recorded(simcheck.Params.check(recording=name))


def test_results_and_figure(checkout: object) -> None:  # noqa: F811
    rows = simcheck.comparison(REAL, as_simulated())
    saved = simcheck.save(P, rows)
    assert saved.values == [] and len(saved.summaries) == len(rows)
    assert simcheck.figure(P, REAL, as_simulated()).png.stat().st_size > 10_000


@pytest.mark.slow
def test_scheduler_pool_and_controller_do_the_same_as_on_the_gpu() -> None:
    """VAMP, 28 sessions: every count is the recorded one; with another limit it is not."""
    from vamp.sim.run import run_spec

    (one,) = [r for r in REAL if r.label == "VAMP-25, 28 sessions"]
    assert simcheck.simulated_facts(run_spec(one.spec)) == one.facts
    tight = run_spec(replace(one, spec=one.spec.model_copy(update={"ratio_pct": 5.0})).spec)
    assert simcheck.simulated_facts(tight) != one.facts
