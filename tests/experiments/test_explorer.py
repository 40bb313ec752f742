from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.experiments.made_up import decision, run
from tests.report.conftest import checkout  # noqa: F401
from vamp.errors import ConfigError, InvariantError
from vamp.experiments import decisions, explorer, fig9, table4
from vamp.measure.records import RunResult

P = explorer.Params.check()
MORE = {"phase": "running", "gap_blk": 4, "w_steps": 9, "r_hit": 0.5, "p_eff": 0.2, "n_cand_shards": 8}


def made(*records: dict[str, Any]) -> RunResult:
    return run(explorer.spec(P), decisions=[r | MORE for r in records])


RUN = made(*[decision("evict", c=4e3, e=9e3), decision("offload", c=7e3, e=2e3, b=3e3)] * 10)


def test_the_run_is_one_that_others_have() -> None:
    assert explorer.spec(P) in decisions.specs(decisions.Params.check())
    assert explorer.spec(P) in fig9.specs(fig9.Params.check())
    replay = explorer.Params.check(workload="replay", platform="h100_pcie_tp2", ratio=15)
    assert explorer.spec(replay) in table4.specs(table4.Params.check())


def test_a_range_and_a_plan_are_picked_by_number() -> None:
    p = explorer.Params.check(first=3, count=4)
    assert list(explorer.steps(p, RUN)["number"]) == [3, 4, 5, 6]
    offloads = explorer.steps(explorer.Params.check(choice="offload", first=3, count=2), RUN)
    assert list(offloads["number"]) == [3, 5] and set(offloads["choice"]) == {"offload"}
    assert offloads["C_e_ms"].tolist() == [2.0, 2.0] and offloads["C_p_ms"].isna().all()


def test_an_empty_range_says_how_many_there_are() -> None:
    with pytest.raises(ConfigError, match="no decisions from number 20 on; the run has 20 in all"):
        explorer.steps(explorer.Params.check(first=20), RUN)
    with pytest.raises(ConfigError, match="no decisions for preempt"):
        explorer.steps(explorer.Params.check(choice="preempt"), RUN)
    with pytest.raises(ConfigError, match="has 0 in all"):
        explorer.steps(P, made())


def test_a_wrong_choice_is_caught() -> None:
    with pytest.raises(InvariantError):
        explorer.steps(P, made(decision("offload", c=1.0, e=2.0)))


@pytest.mark.usefixtures("checkout")
def test_tables_figure_and_results() -> None:
    rows = explorer.steps(P, RUN)
    text = explorer.table(rows)
    assert text.loc[0, "C_c_ms"] == "4" and text.loc[0, "C_p_ms"] == "-"
    counts = explorer.counts(RUN).set_index("plan")
    assert counts.loc["evict"].tolist() == ["C_c", 20, 10] and counts.loc["offload_evict", "feasible"] == 10
    assert len(pd.read_csv(explorer.figure(P, explorer.spec(P), rows).csv)) == 20
    saved = explorer.save(P, RUN, rows)
    assert saved.values == [] and len(saved.summaries) == 4
    assert explorer.verdict(RUN).startswith("every choice") and explorer.verdict(made()).startswith("no decision")
