from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.conftest import checkout  # noqa: F401
from vamp.experiments import table1
from vamp.report.verdicts import judge


@pytest.fixture
def platforms() -> list[table1.Platform]:
    return table1.load(table1.Params.check())


def verdicts(platforms: list[table1.Platform]) -> dict[str, str]:
    return {m.id: judge(m, {}, backend="sim").verdict for m in table1.measured(platforms)}


def test_every_closed_form_value_of_table_1_matches(platforms: list[table1.Platform]) -> None:
    got = verdicts(platforms)
    assert set(got.values()) == {"match"}
    assert {"table1.h100.expert_weights_per_gpu", "table1.h200.shards_per_group", "coef.c_eff"} <= set(got)


def test_another_page_size_would_not_match(platforms: list[table1.Platform]) -> None:
    h100 = replace(platforms[0], experts=replace(platforms[0].experts, page_bytes=2**22))
    assert verdicts([h100, platforms[1]])["table1.h100.shards_per_group"] == "miss"


def test_the_bars_add_up_to_the_gpu(platforms: list[table1.Platform]) -> None:
    totals = table1.hbm_parts(platforms).groupby("bar")["gib"].sum()
    assert totals.to_dict() == pytest.approx({p.title: p.hbm_gib for p in platforms})
    assert (table1.hbm_parts(platforms)["gib"] > 0).all()


@pytest.mark.usefixtures("checkout")
def test_inputs_are_not_measured_and_setup_is_cited(platforms: list[table1.Platform]) -> None:
    saved = table1.save(table1.Params.check(), platforms)
    assert saved.verdicts["table1.h100.kv_pool_per_gpu"] == "not_run"
    assert saved.verdicts["table1.h100.gpus"] == "cited"
    assert saved.notebook == Path(saved.notebook).stem == "01_table1_platforms"
    assert list(table1.table(platforms).columns) == [p.title for p in platforms]


@pytest.mark.usefixtures("checkout")
def test_one_platform_alone() -> None:
    p = table1.Params.check(platform="h200_nvl_tp4")
    saved = table1.save(p, table1.load(p))
    assert saved.verdicts["table1.h200.expert_weights_per_gpu"] == "match"
    assert saved.verdicts["table1.h100.expert_weights_per_gpu"] == "not_run"
    assert table1.figure(p, table1.load(p)).png.stat().st_size > 5000
