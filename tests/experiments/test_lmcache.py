from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.experiments import lmcache
from vamp.experiments.spec import RunSpec
from vamp.measure.records import CUT, RunResult

P = lmcache.Params.check()
BY_RATIO = {0.0: (29.0, 119.0), 15.0: (4.0, 263.0), 20.0: (4.2, 300.0)}


def made(p: lmcache.Params) -> tuple[list[RunSpec], list[RunResult], pd.DataFrame]:
    """Slow and preempting without VAMP: test data; at 64 sessions VAMP-20 has the lower tail."""
    specs, runs = lmcache.specs(p), []
    for s in specs:
        ttft_s, tpot_ms = BY_RATIO[s.ratio_pct]
        if lmcache._load(s) == 64:
            ttft_s = {0.0: 2.0, 15.0: 1.6, 20.0: 1.3}[s.ratio_pct]
        one = run(s, ttft_s=ttft_s, tpot_ms=tpot_ms, preemptions=0 if s.ratio_pct else 3)
        one.meta |= {"n_turns": 25, "label": "test data"}  # 20 of them are in the run
        runs.append(one)
    return specs, runs, lmcache.cells(specs, runs)


def test_specs_are_a_fixed_window_at_every_load_and_ratio() -> None:
    specs = lmcache.specs(P)
    assert [(s.workload.concurrency, s.ratio_pct) for s in specs] == [(n, r) for n in (64, 128) for r in (0, 15, 20)]
    assert all(s.fixed_time and s.max_virtual_s == 3600 for s in specs)


def test_a_recording_takes_the_place_of_the_stand_in(tmp_path: Path) -> None:
    p = lmcache.Params.check(trace=str(tmp_path))
    specs = lmcache.specs(p)
    assert {(s.workload.kind, s.workload.sessions) for s in specs} == {("trace", 64), ("trace", 128)}
    assert all(s.fixed_time for s in specs)


def test_every_printed_number_is_measured() -> None:
    own = {m.id: m.value for m in lmcache.measured(P, made(P)[2])}
    assert len(own) == 14 == len(lmcache.results.matching_ids("lmcache.*"))
    assert own["lmcache.128.vllm.ttft_p99"] == pytest.approx(29.0)
    assert own["lmcache.128.vamp15.completed"] == 80.0
    assert own["lmcache.128.vllm.preemptions"] == 60
    assert own["lmcache.64.vamp20.ttft_p99"] == pytest.approx(1.3)
    assert own["lmcache.128.vamp20.qualitative"] is True


@pytest.mark.parametrize(("column", "value"), [("ttft_p99_s", 9.0), ("tpot_ms", 1.0), ("output_tokens_per_s", 1e9)])
def test_each_part_of_the_sentence_can_fail(column: str, value: float) -> None:
    cells = made(P)[2]
    cells.loc[(cells["system"] == "VAMP-20") & (cells["concurrency"] == 128), column] = value
    own = {m.id: m.value for m in lmcache.measured(P, cells)}
    assert own["lmcache.128.vamp20.qualitative"] is False


@pytest.mark.usefixtures("checkout")
def test_results_table_and_figure() -> None:
    specs, runs, cells = made(P)
    saved = lmcache.save(P, specs, runs, cells)
    assert saved.verdicts["lmcache.128.vllm.ttft_p99"] == "trend"
    assert saved.verdicts["setup.lmcache_window"] == "cited"
    table = lmcache.table(cells).set_index(["sessions", "metric"])
    assert table.loc[(128, "TTFT p99, s"), "vLLM"] == "29 [29.3 ± 0.6]"
    assert table.loc[(64, "TPOT, ms"), "VAMP-15"] == "263"
    drawn = pd.read_csv(lmcache.figure(P, cells, runs).csv)
    assert len(drawn) == 6 and set(drawn["sessions"]) == {64, 128}


def test_swapped_systems_are_a_miss() -> None:
    """Negative control."""
    cells = made(P)[2]
    cells["system"] = cells["system"].replace({"vLLM": "VAMP-15", "VAMP-15": "vLLM"})
    own = lmcache.measured(P, cells)
    rows = {r["id"]: r["verdict"] for r in lmcache.results.judged_rows(lmcache.COVERS, own, "sim")}
    assert rows["lmcache.128.vllm.ttft_p99"] == rows["lmcache.128.vamp15.ttft_p99"] == "miss"
    assert rows["lmcache.128.vamp15.preemptions"] == "miss"


def test_what_the_window_cut_off_is_unfinished_and_not_failed() -> None:
    specs, runs, _ = made(P)
    runs[0].requests.loc[runs[0].requests.index[-5:], ["error", "finish_s"]] = [CUT, None]
    cell = lmcache.cells(specs, runs).iloc[0]
    assert cell["completed_pct"] == 60.0 and cell["failed"] == 0


@pytest.mark.parametrize("given", [{"minutes": 10.0}, {"scale": 0.5}])
def test_another_window_or_scale_measures_nothing(given: dict[str, object]) -> None:
    p = lmcache.Params.check(**given)
    assert p.why_not and lmcache.measured(p, made(p)[2]) == []
