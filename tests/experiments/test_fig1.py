from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.experiments import fig1a, fig1b, fig9
from vamp.report.verdicts import judge


@pytest.mark.usefixtures("checkout")
def test_fig1a_every_closed_form_value_matches() -> None:
    p = fig1a.Params.check()
    pl = fig1a.load(p)
    saved = fig1a.save(p, pl)
    own = {m.id for m in fig1a.measured(p, pl)}
    assert len(own) == 5 and {saved.verdicts[i] for i in own} == {"match"}
    assert {v for i, v in saved.verdicts.items() if i not in own} == {"cited"}
    assert list(fig1a.table(pl)["paper, %"]) == ["16", "69", ""]
    assert fig1a.figure(p, pl).png.stat().st_size > 5000


def test_fig1a_bars_are_whole_gpus() -> None:
    pl = fig1a.load(fig1a.Params.check())
    assert fig1a.parts(pl).groupby("bar")["gib"].sum().tolist() == pytest.approx([94.0] * 3)


def test_fig1a_another_shape_would_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    p = fig1a.Params.check()
    monkeypatch.setattr(fig1a, "LLAMA_8B", replace(fig1a.LLAMA_8B, layers=40))
    own = {m.id: m for m in fig1a.measured(p, fig1a.load(p))}
    assert judge(own["motivation.llama31_8b.weights"], {}, backend="sim").verdict == "miss"


@pytest.mark.parametrize(("model", "billions"), [(fig1a.LLAMA_8B, 8.03), (fig1a.LLAMA_70B, 70.55)])
def test_parameters_are_the_published_ones(model: fig1a.DenseModel, billions: float) -> None:
    assert model.n_params / 1e9 == pytest.approx(billions, abs=0.005)


@pytest.mark.usefixtures("checkout")
def test_fig1a_shares_are_of_the_papers_gpu() -> None:
    p = fig1a.Params.check(platform="h200_nvl_tp4")
    saved = fig1a.save(p, fig1a.load(p))
    assert saved.verdicts["motivation.llama31_8b.share"] == "not_run"
    assert saved.verdicts["motivation.llama31_8b.weights"] == "match"


def cliff_cells(p: fig1b.Params, at: int) -> pd.DataFrame:
    """Made up: from `at` sessions on slow and without hits."""
    specs = fig1b.specs(p)
    runs = []
    for s in specs:
        past = (s.workload.concurrency or 0) >= at
        runs.append(run(s, ttft_s=50.0 if past else 1.0, hit_pct=5.0 if past else 80.0))
    return fig1b.cells(p, specs, runs)


def test_fig1b_shares_the_runs_of_fig9() -> None:
    own = {s.model_dump_json() for s in fig1b.specs(fig1b.Params.check())}
    known = {s.model_dump_json() for s in fig9.specs(fig9.Params.check(ratios=[0]))}
    assert known < own and len(own - known) == 3


@pytest.mark.usefixtures("checkout")
def test_fig1b_finds_the_cliff_where_it_is() -> None:
    p = fig1b.Params.check(platform="h100_pcie_tp2")
    cells = cliff_cells(p, 12)
    assert fig1b.cliff(cells, p.platform) == (8, 12)
    assert fig1b.lines(cells).endswith("between 8 and 12 sessions; the hit rate falls there")
    assert fig1b.figure(p, cells).png.stat().st_size > 5000
    assert len(fig1b.table(cells)) == len(cells) == 7
    saved = fig1b.save(p, cells)
    assert saved.values == [] and len(saved.summaries) == 7


@pytest.mark.parametrize("at", [4, 99])
def test_fig1b_without_a_cliff_says_so(at: int) -> None:
    p = fig1b.Params.check(platform="h100_pcie_tp2")
    assert fig1b.lines(cliff_cells(p, at)).endswith("no cliff inside the sweep")


def test_fig1b_demand_grows_with_the_sessions() -> None:
    one = fig1b.demand("h100_pcie_tp2", 1)
    assert one == pytest.approx(-(-72_120 // 544) / 1288)
    assert fig1b.demand("h100_pcie_tp2", 10) == pytest.approx(10 * one)
