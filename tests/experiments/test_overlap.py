from __future__ import annotations

import pandas as pd
import pytest

from tests.report.conftest import checkout  # noqa: F401
from vamp.experiments import overlap
from vamp.sim.platforms import load_platform

P = overlap.Params.check()


def test_one_row_per_platform_ratio_and_step() -> None:
    rows = overlap.rows(P)
    assert len(rows) == 2 * len(P.ratios) * len(P.tokens)
    assert (rows["hidden_pct"].between(0, 100)).all()


def test_a_copy_takes_its_bytes_over_the_bandwidth() -> None:
    pl = load_platform("h100_pcie_tp2")
    row = overlap.rows(overlap.Params.check(platform=pl.name, ratios=[15], tokens=[8])).iloc[0]
    groups = pl.experts.max_groups(15.0)
    bytes_per_layer = groups * pl.experts.group_bytes / pl.experts.eligible_layers
    assert row["copy_ms"] == pytest.approx(bytes_per_layer / (pl.step_time.h2d_gbps * 1e9) * 1e3)


def test_more_offloaded_hides_less_and_nothing_more_hides_than_there_is() -> None:
    rows = overlap.rows(P)
    for _, of in rows.groupby(["title", "n_tok"]):
        hidden = of.sort_values("ratio_pct")["hidden_pct"].tolist()
        assert hidden == sorted(hidden, reverse=True)
    hiding = rows[rows["compute_ms"] >= rows["copy_ms"]]
    on_nvlink = hiding[hiding["title"].str.contains("NVLink")]  # there TP traffic does not share the bus
    assert len(on_nvlink) and (on_nvlink["hidden_pct"] == 100).all()


def test_the_model_of_the_recorded_gpu_is_near_its_recorded_steps() -> None:
    """Steps outside CUDA graphs are furthest off: launches set their pace, 116 to 144 ms in recorded runs."""
    ratio = overlap.recorded_table()["model / recorded"].astype(float)
    assert len(ratio) == 11
    assert ratio.between(0.7, 1.25).all()


@pytest.mark.usefixtures("checkout")
def test_nothing_is_judged_and_the_figure_is_written() -> None:
    rows = overlap.rows(P)
    saved = overlap.save(P, rows)
    assert set(saved.verdicts.values()) == {"cited"}
    assert len(pd.read_csv(overlap.figure(P, rows).csv)) == len(rows)
    assert overlap.table(rows).shape == (2 * len(P.ratios), len(P.tokens))
