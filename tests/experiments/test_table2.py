from __future__ import annotations

import pytest

from tests.report.conftest import checkout  # noqa: F401
from vamp.experiments import table2
from vamp.report.verdicts import judge

P = table2.Params.check()


def test_the_expansion_follows_from_the_geometry() -> None:
    rows = table2.expansion(P).set_index("system")
    assert rows.loc["vLLM", "reclaimed_gib"] == 0
    assert rows.loc["VAMP-15", "groups"] == 47 * 38
    assert rows.loc["VAMP-15", "reclaimed_gib"] == pytest.approx(47 * 76 * 3 / 1024)
    assert rows.loc["VAMP-20", "factor"] == pytest.approx(1 + 47 * 102 * 3 / 1024 / 8.02)
    assert rows["pool_blk"].is_monotonic_increasing


def test_it_matches_the_paper_and_another_ratio_would_not() -> None:
    rows = table2.expansion(P)
    assert {judge(m, {}, backend="sim").verdict for m in table2.measured(rows, P.platform)} == {"match"}
    assert len(table2.measured(rows, P.platform)) == 9
    wrong = rows.assign(reclaimed_gib=rows["reclaimed_gib"] * 1.05)
    assert "miss" in {judge(m, {}, backend="sim").verdict for m in table2.measured(wrong, P.platform)}


@pytest.mark.usefixtures("checkout")
def test_results_and_table() -> None:
    rows = table2.expansion(P)
    saved = table2.save(P, rows)
    assert saved.claim_lines() == "C1: match (4 of 4 deciding values)"
    assert saved.verdicts["table2.vllm.total_kv_pool"] == "not_run"
    assert len(saved.summaries) == 3
    table = table2.table(P, rows).set_index("system")
    assert table.loc["VAMP-15", "paper"] == "2.3"
    assert table2.figure(P, rows).png.stat().st_size > 5000


@pytest.mark.usefixtures("checkout")
def test_another_platform_or_ratio_measures_nothing_of_the_paper() -> None:
    other = table2.Params.check(platform="h200_nvl_tp4")
    assert set(table2.save(other, table2.expansion(other)).verdicts.values()) == {"not_run", "cited"}
    ten = table2.Params.check(ratios=[10])
    assert table2.measured(table2.expansion(ten), ten.platform) == []
    assert table2.table(ten, table2.expansion(ten)).loc[0, "paper"] == ""
