from __future__ import annotations

import pandas as pd
import pytest

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.errors import ConfigError
from vamp.experiments import fig10a, fig10b
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult

PAPER = {  # made up, in the paper's order: TTFT s, TPOT ms
    "vLLM": (26.0, 171.0),
    "VAMP-10": (6.0, 185.0),
    "VAMP-15": (1.0, 224.0),
    "VAMP-20": (1.05, 290.0),
}


def made(specs: list[RunSpec], **changed: tuple[float, float]) -> list[RunResult]:
    of = PAPER | {name.replace("_", "-"): value for name, value in changed.items()}
    return [run(s, ttft_s=of[s.system][0], tpot_ms=of[s.system][1], turns=12) for s in specs]


def cells(p: fig10a.Params, **changed: tuple[float, float]) -> pd.DataFrame:
    specs = fig10a.specs(p)
    rows = fig10a.cells(specs, made(specs, **changed))
    rate = {"vLLM": 0.6, "VAMP-10": 0.71, "VAMP-15": 0.72, "VAMP-20": 0.6}
    return rows.assign(requests_per_s=rows["system"].map(rate))


@pytest.mark.usefixtures("checkout")
def test_the_three_statements_hold_of_the_papers_order() -> None:
    p = fig10a.Params.check()
    rows = cells(p)
    saved = fig10a.save(p, rows)
    assert {saved.verdicts[i] for i in saved.verdicts if ".order." in i} == {"trend"}
    assert saved.verdicts["fig10a.configs"] == "cited"
    assert list(fig10a.table(rows).columns) == list(PAPER)
    assert fig10a.figure(p, made(fig10a.specs(p)), rows).png.stat().st_size > 5000


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("ttft_p90", {"VAMP_20": (0.9, 290.0)}),  # VAMP-15 is not the lowest
        ("ttft_p90", {"VAMP_20": (1.3, 290.0)}),  # VAMP-20 is not comparable
        ("tpot", {"VAMP_20": (1.05, 200.0)}),
    ],
)
def test_another_order_is_told(statement: str, changed: dict[str, tuple[float, float]]) -> None:
    p = fig10a.Params.check()
    found = fig10a.statements(p, cells(p, **changed))
    assert [name for name, holds in found.items() if not holds] == [f"fig10a.order.{statement}"]


def test_a_throughput_that_is_not_comparable_is_told() -> None:
    p = fig10a.Params.check()
    rows = cells(p)
    for system, rate in (("VAMP-10", 0.9), ("VAMP-20", 0.75)):
        changed = rows.assign(requests_per_s=rows["requests_per_s"].where(rows["system"] != system, rate))
        assert not fig10a.statements(p, changed)["fig10a.order.throughput"]


def test_without_all_ratios_nothing_is_judged() -> None:
    p = fig10a.Params.check(ratios=[0, 15])
    assert fig10a.measured(p, cells(p)) == []


def grid(p: fig10b.Params, **changed: tuple[float, float]) -> pd.DataFrame:
    specs = fig10b.specs(p)
    return fig10b.grid(p, specs, made(specs, **changed))


@pytest.mark.usefixtures("checkout")
def test_the_grid_and_its_leaders() -> None:
    p = fig10b.Params.check()
    found = grid(p)
    assert len(found) == 4 * 25
    at = found.set_index(["system", "ttft_limit_s", "tpot_limit_ms"])["share"]
    assert at["VAMP-15", 1.0, 200.0] == 0 and at["VAMP-15", 2.0, 250.0] == 1
    assert at["vLLM", 10.0, 350.0] == 0 and at["vLLM", 30.0, 200.0] == 1
    best = fig10b.leaders(found).set_index(["ttft_limit_s", "tpot_limit_ms"])["system"]
    assert best[30.0, 150.0] == "none" and best[10.0, 200.0] == "VAMP-10" and best[2.0, 250.0] == "VAMP-15"
    assert fig10b.table(found).shape == (5, 5)
    assert fig10b.figure(p, made(fig10b.specs(p)), found).png.stat().st_size > 5000
    assert fig10b.save(p, found).verdicts["fig10b.P150"] == "trend"


def test_statements_can_fail() -> None:
    p = fig10b.Params.check(ttft_limits_s=[2])
    assert fig10b.statements(grid(p))["fig10b.P250"]
    assert not fig10b.statements(grid(p, VAMP_15=(3.0, 224.0)))["fig10b.P250"]
    assert not fig10b.statements(grid(p, VAMP_15=(1.0, 140.0)))["fig10b.P150"]
    assert not fig10b.statements(grid(p, VAMP_15=(1.0, 140.0)))["fig10b.P200"]


def test_limits_are_checked() -> None:
    assert fig10b.Params.check(tpot_limits_ms="200, 150").tpot_limits_ms == (150.0, 200.0)
    with pytest.raises(ConfigError, match="ttft_limits_s"):
        fig10b.Params.check(ttft_limits_s=[0])
    p = fig10b.Params.check(tpot_limits_ms=[150, 200])
    assert "250" in p.lacks and fig10b.measured(p, grid(p)) == []
