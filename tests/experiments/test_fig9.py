from __future__ import annotations

import math

import pandas as pd
import pytest

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.errors import ConfigError
from vamp.experiments import fig9
from vamp.experiments.spec import RunSpec

P = fig9.Params.check()
PAPER = {  # first concurrency past the boundary; 99: none
    "h100_pcie_tp2": {"vLLM": 16, "VAMP-15": 24, "VAMP-20": 28, "VAMP-25": 99},
    "h200_nvl_tp4": {"vLLM": 32, "VAMP-15": 32, "VAMP-20": 36, "VAMP-25": 36},
}


def cells(p: fig9.Params, shift: int = 0) -> pd.DataFrame:
    """Test data: 3 s below the paper's boundaries (moved by `shift`), 50 s past them."""

    def made(s: RunSpec) -> float:
        return 50.0 if (s.workload.concurrency or 0) >= PAPER[s.platform][s.system] + shift else 3.0

    specs = fig9.specs(p)
    return fig9.cells(specs, [run(s, ttft_s=made(s), sessions=2, turns=3) for s in specs])


def test_specs_cover_both_platforms_and_the_papers_concurrencies() -> None:
    specs = fig9.specs(P)
    assert len(specs) == 4 * 4 + 4 * 6
    assert {s.workload.concurrency for s in specs if s.platform == "h100_pcie_tp2"} == {16, 20, 24, 28}
    assert len(fig9.specs(fig9.Params.check(platform="h100_pcie_tp2", concurrency=[8], repeats=3))) == 12


def test_boundaries_are_found_where_they_are() -> None:
    table = fig9.boundaries(cells(P)).set_index(["platform", "system"])
    assert table.loc[("h100_pcie_tp2", "VAMP-15"), "boundary"] == "24"
    assert table.loc[("h100_pcie_tp2", "VAMP-25"), "boundary"] == "none"
    assert table.loc[("h100_pcie_tp2", "VAMP-25"), "paper"] == "none"
    assert table.loc[("h100_pcie_tp2", "vLLM"), "paper"] == "<= 16"
    assert table.loc[("h200_nvl_tp4", "VAMP-15"), "paper"] == "not printed"
    assert set(table["threshold, s"]) == {"6.00"}


@pytest.mark.parametrize(("p99_s", "crossed"), [(6.0, None), (6.01, 20), (math.nan, 20)])
def test_the_rule_is_twice_the_lowest(p99_s: float, crossed: int | None) -> None:
    rows = pd.DataFrame(
        {
            "platform": "p",
            "system": ["vLLM"] * 3,
            "concurrency": [16, 20, 24],
            "ttft_p99_s": [3.0, p99_s, 4.0],
        }
    )
    limit = fig9.thresholds(rows)["p"]
    assert limit == 6.0
    assert fig9.boundary(rows, "p", "vLLM", limit) == crossed


@pytest.mark.usefixtures("checkout")
def test_results_of_the_papers_picture() -> None:
    saved = fig9.save(P, cells(P))
    boundaries = {i: v for i, v in saved.verdicts.items() if i.endswith("boundary")}
    assert len(boundaries) == 7 and set(boundaries.values()) == {"trend"}
    assert saved.claim_lines() == "C8: trend (7 of 7 deciding values)"
    values = {v["id"]: v for v in saved.values}
    assert values["fig9.h100.vamp25.boundary"]["measured"] is None
    assert values["fig9.h200.band"]["measured"] == [3.0, 3.0]
    assert values["fig9.h200.vllm.c32.ttft_p99"]["platform"] == "h200_nvl_tp4"
    assert values["sweep.h100.c"]["verdict"] == "cited"
    measured = {i for i, v in saved.verdicts.items() if v in ("trend", "miss")}
    assert measured == {i for i in values if i.startswith("fig9.")}


@pytest.mark.usefixtures("checkout")
def test_boundaries_one_step_late_are_a_miss() -> None:
    """Negative control of the test above."""
    saved = fig9.save(P, cells(P, shift=4))
    assert saved.claim_lines() == "C8: miss (7 of 7 deciding values)"


def test_another_sweep_has_no_boundary_of_the_paper() -> None:
    for change in ({"concurrency": [16, 24, 28]}, {"ratios": [0, 15]}):
        p = fig9.Params.check(**change)
        assert not [m for m in fig9.measured(p, cells(p)) if m.id.endswith("boundary")]
    assert fig9.measured(fig9.Params.check(scale=0.5), cells(P)) == []


def test_a_platform_that_the_paper_does_not_have() -> None:
    with pytest.raises(ConfigError, match="no sweep on h300; give session counts"):
        fig9.paper_sweep("h300")
    rows = cells(fig9.Params.check(platform="h100_pcie_tp2")).assign(platform="h300")
    assert set(fig9.boundaries(rows)["paper"]) == {"not printed"}


@pytest.mark.usefixtures("checkout")
def test_one_h200_as_a_rank_of_the_h100_pair_is_never_an_h100() -> None:
    p = fig9.Params.check(platform="h200_tp2_rank")
    rows = cells(fig9.Params.check(platform="h100_pcie_tp2")).assign(platform="h200_tp2_rank")
    saved = fig9.save(p, rows)
    value = next(v for v in saved.values if v["id"] == "fig9.h100.vllm.boundary")
    assert (value["measured"], value["verdict"]) == (None, "not_run")
    assert saved.claim_lines() == "C8: not_run (0 of 7 deciding values)"


def test_values_that_combine_cells() -> None:
    own = {m.id: m.value for m in fig9.measured(P, cells(P))}
    assert own["fig9.h200.c32.factor"] == pytest.approx(50 / 3)
    assert own["fig9.h100.vamp15.c24.vs_baseline"] == pytest.approx(0.0)
    assert own["fig9.h100.vamp25.ttft_p99"] == pytest.approx((3.0, 3.0))
    assert own["fig9.h100.c28.vamp.preemptions"] == 0


@pytest.mark.usefixtures("checkout")
def test_tables_and_figure() -> None:
    got = cells(P)
    wide = fig9.table(got)
    assert list(wide.columns) == [16, 20, 24, 28, 32, 36]
    assert wide.loc[("h100_pcie_tp2", "VAMP-15"), 24] == "50"
    assert wide.loc[("h100_pcie_tp2", "VAMP-15"), 36] == ""
    assert len(pd.read_csv(fig9.figure(P, got).csv)) == len(got)
