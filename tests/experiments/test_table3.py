from __future__ import annotations

import pytest

from tests.report.conftest import checkout  # noqa: F401
from vamp.errors import ClaimError
from vamp.experiments import table3


def test_run_counts_are_the_papers() -> None:
    rows = table3.matrix()
    assert [e.runs for e in rows] == [3, 5, 3, 5, 5]
    assert [e.n_runs for e in rows] == [6, 20, 18, 80, 120]
    assert [e.gpu_hours for e in rows][:3] == pytest.approx([72.0, 39.2, 36.0], abs=0.05)
    assert table3.table(rows)["GPU-hours"].tolist()[3:] == ["n/a", "n/a"]


def test_statistics_of_the_generators() -> None:
    found = table3.statistics()
    assert table3.check(found) == "8 of 8 statistics as printed"


def test_a_wrong_count_fails() -> None:
    found = table3.statistics()
    found.loc[1, ["here", "holds"]] = [2102, False]
    with pytest.raises(ClaimError, match="replay: turns is 2102, paper 2103"):
        table3.check(found)


@pytest.mark.parametrize(
    ("paper", "here", "holds"), [(">= 12", 11, False), ("< 12", 12, False), (48, 47, False), (48, 48, True)]
)
def test_comparisons(paper: object, here: int, holds: bool) -> None:
    assert table3._holds(paper, here) is holds


@pytest.mark.usefixtures("checkout")
def test_setup_values_are_cited() -> None:
    saved = table3.save(table3.Params.check(), table3.matrix())
    assert set(saved.verdicts.values()) == {"cited"} and len(saved.summaries) == 5
