from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.experiments import replays, sensitivity, table4
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult

P = table4.Params.check()


def made(p: table4.Params) -> tuple[list[RunSpec], list[RunResult]]:
    """vLLM slow and thrashing, VAMP fast: test data."""
    specs = table4.specs(p)
    slow = {"ttft_s": 26.0, "queue_s": 15.0, "tpot_ms": 170.0, "hit_pct": 0.2, "preemptions": 1}
    fast = {"ttft_s": 1.1, "queue_s": 0.02, "tpot_ms": 224.0, "hit_pct": 90.0}
    return specs, [run(s, **(fast if s.ratio_pct else slow)) for s in specs]  # type: ignore[arg-type]


def test_specs_are_two_systems_and_every_seed() -> None:
    specs = table4.specs(P)
    assert [(s.system, s.seed) for s in specs] == [("vLLM", 0), ("vLLM", 1), ("VAMP-15", 0), ("VAMP-15", 1)]
    assert all(s.workload.kind == "replay" and not s.reserve_full_isl for s in specs)


def test_every_value_of_the_table_is_measured() -> None:
    specs, runs = made(P)
    own = {m.id: m for m in table4.measured(P, table4.cells(specs, runs))}
    assert len(own) == 3 * 7 + 6
    assert own["table4.vllm.ttft_p90"].value == pytest.approx(26.0)
    assert own["table4.diff.ttft_p90"].value == pytest.approx(26.0 / 1.1)
    assert own["table4.diff.hit_rate"].value == pytest.approx(89.8)
    assert own["table4.diff.preemptions_per_1k"].value == -100
    assert own["replay.vamp15.queue_mean_ms"].value == pytest.approx(20.0)
    assert own["headline.tpot.change"].value == own["table4.diff.tpot"].value
    assert own["table4.vllm.tpot"].n == 2


@pytest.mark.usefixtures("checkout")
def test_results_table_and_figures() -> None:
    specs, runs = made(P)
    cells = table4.cells(specs, runs)
    saved = table4.save(P, specs, runs, cells)
    assert saved.verdicts["table4.diff.ttft_p90"] == "trend"
    assert saved.verdicts["headline.trace_turns"] == "cited"
    assert "match" not in saved.verdicts.values()
    table = table4.table(P, cells).set_index("metric")
    assert table.loc["TTFT p90, s", "difference"] == "23.64x lower"
    assert table.loc["TTFT p90, s", "paper difference"] == "23.6x lower"
    assert table.loc["TPOT, ms", "difference"] == "+31.76 %"
    assert {s["system"] for s in saved.summaries} == {"vLLM", "VAMP-15"}
    cdf = pd.read_csv(table4.cdf_figure(P, specs, runs).csv)
    assert cdf.groupby("system")["ttft_s"].median().to_dict() == pytest.approx({"vLLM": 26.0, "VAMP-15": 1.1})
    line = pd.read_csv(table4.timeline_figure(P, specs, runs).csv)
    hits = line.loc[line["system"] == "VAMP-15", "hit_pct"].dropna()
    assert len(hits) > 10 and hits.tolist() == pytest.approx([90.0] * len(hits))


def test_swapped_systems_are_a_miss() -> None:
    """Negative control: the same data with the names exchanged supports no claim."""
    specs, runs = made(P)
    own = table4.measured(P, table4.cells(specs, runs[2:] + runs[:2]))
    rows = {r["id"]: r["verdict"] for r in table4.results.judged_rows(table4.COVERS, own, "sim")}
    assert [rows[f"table4.diff.{m}"] for m in ("ttft_p90", "ttft_p99", "tpot")] == ["miss"] * 3
    assert rows["table4.vllm.ttft_p90"] == "miss"


def test_another_ratio_measures_the_baseline_only() -> None:
    p = table4.Params.check(ratio=20)
    specs, runs = made(p)
    assert {m.id.split(".")[1] for m in table4.measured(p, table4.cells(specs, runs))} == {"vllm", "ttft_p90"}
    assert "VAMP-20" in table4.table(p, table4.cells(specs, runs)).columns


def test_a_scaled_workload_measures_nothing() -> None:
    p = table4.Params.check(scale=0.5)
    specs, runs = made(p)
    assert specs[0].workload.scale == 0.5
    assert table4.measured(p, table4.cells(specs, runs)) == []


@pytest.mark.parametrize(
    ("kind", "base", "own", "expected"),
    [
        (table4.FACTOR, 26.1, 1.1, 23.7),
        (table4.PERCENT, 0.596, 0.72, 20.8),
        (table4.POINTS, 0.19, 89.8, 89.6),
        (table4.PERCENT, 0.0, 1.0, math.nan),
        (table4.FACTOR, 1.0, 0.0, math.nan),
    ],
)
def test_differences_are_stated_as_in_the_paper(kind: str, base: float, own: float, expected: float) -> None:
    assert table4.difference(kind, base, own) == pytest.approx(expected, abs=0.05, nan_ok=True)


def test_sensitivity_changes_one_assumption_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sensitivity, "results_dir", lambda: tmp_path)
    assert sensitivity.specs(P) == []
    stored = sensitivity.table(P, [], [])
    assert list(stored["variant"]) == [name for name, _ in sensitivity.variants()]
    p = table4.Params.check(sensitivity=True)
    specs = sensitivity.specs(p)
    assert len(specs) == 2 * len(sensitivity.variants()) == 2 * (1 + 2 * 10)
    assert specs[:2] == [replays.spec(p, ratio, 0, max_virtual_s=sensitivity.SPAN_S) for ratio in (0.0, 15.0)]
    changed = [len(s.step_time) + len(s.workload.overrides) for s in specs[2:]]
    assert set(changed) == {1}
    assert len({s.model_dump_json() for s in specs}) == len(specs)
    table = sensitivity.table(p, specs, [run(s, ttft_s=1.0 if s.ratio_pct else 26.0) for s in specs])
    assert list(table["TTFT p90, x lower"]) == ["26.0"] * 21
    assert (tmp_path / table4.NOTEBOOK / "sensitivity.sim.csv").read_text().count("\n") == 22
