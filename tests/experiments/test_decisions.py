from __future__ import annotations

import pandas as pd
import pytest

from tests.experiments.made_up import decision, run
from tests.report.conftest import checkout  # noqa: F401
from vamp.errors import InvariantError
from vamp.experiments import decisions, fig9
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult

P = decisions.Params.check(repeats=2)
AT_32 = [
    decision("evict", c=40e3, e=50e3, p=90e3),
    decision("evict", c=44e3, e=60e3),
    decision("evict", c=30e3),  # offloading was not feasible: no pair to compare
    decision("offload", c=70e3, e=50e3),
    decision("offload_evict", c=70e3, e=None, b=60e3),
]


def made(p: decisions.Params) -> tuple[list[RunSpec], list[RunResult]]:
    specs = decisions.specs(p)
    first = [AT_32 if s.workload.concurrency == 32 and s.seed == p.seed else [] for s in specs]
    return specs, [run(s, decisions=d) for s, d in zip(specs, first, strict=True)]


def test_the_runs_are_those_of_the_sweep() -> None:
    sweep = fig9.specs(fig9.Params.check(repeats=2))
    assert all(s in sweep for s in decisions.specs(P))


@pytest.mark.parametrize(
    "record",
    [
        decision("offload", c=1.0, e=2.0),
        decision("preempt", c=1.0),
        decision(None, c=1.0),
        decision("evict", e=2.0),
    ],
)
def test_a_choice_that_is_not_the_cheapest_is_caught(record: dict[str, object]) -> None:
    with pytest.raises(InvariantError, match="was chosen among"):
        decisions.check_cheapest(record)


@pytest.mark.parametrize("record", [*AT_32, decision(None), decision("evict", c=1.0, e=1.0)])
def test_the_cheapest_passes(record: dict[str, object]) -> None:
    decisions.check_cheapest(record)


def test_values_are_those_of_the_first_run() -> None:
    specs, runs = made(P)
    own = {m.id.removeprefix("decisions."): m.value for m in decisions.measured(P, specs, runs)}
    assert own == {
        "c16.invocations": 0,
        "c32.offload": 2,
        "c32.evict": 3,
        "c32.preempt": 0,
        "c32.median_C_c": 42.0,
        "c32.median_C_e": 55.0,
    }


def test_nothing_to_compare_is_not_measured() -> None:
    only16 = decisions.Params.check(concurrency=[16])
    assert [m.id for m in decisions.measured(only16, *made(only16))] == ["decisions.c16.invocations"]
    quiet = decisions.specs(P)
    got = decisions.measured(P, quiet, [run(s) for s in quiet])
    assert "decisions.c32.median_C_c" not in {m.id for m in got}
    assert decisions.measured(decisions.Params.check(ratio=15), *made(P)) == []


@pytest.mark.usefixtures("checkout")
def test_results_table_and_figure() -> None:
    specs, runs = made(P)
    saved = decisions.save(P, specs, runs)
    assert saved.verdicts["decisions.c32.median_C_c"] == "trend"
    assert saved.verdicts["decisions.c32.evict"] == "miss"  # fewer offloads than evictions, unlike the paper
    table = decisions.table(P, specs, runs)
    assert table.loc[table["c"] == 32, "evict"].tolist() == [3, 0]
    figure = decisions.figure(P, specs, runs)
    assert len(pd.read_csv(figure.csv)) == 3
    stored = pd.read_parquet(figure.csv.parent / "decisions.sim.parquet")
    assert stored["choice"].value_counts().to_dict() == {"evict": 3, "offload": 1, "offload_evict": 1}


@pytest.mark.usefixtures("checkout")
def test_without_any_decision_everything_still_renders() -> None:
    specs = decisions.specs(P)
    runs = [run(s) for s in specs]
    assert decisions.decision_rows(specs, runs).empty
    assert decisions.save(P, specs, runs).verdicts["decisions.c16.invocations"] == "trend"
    assert decisions.figure(P, specs, runs).png.stat().st_size > 5000
