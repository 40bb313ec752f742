from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.errors import ConfigError
from vamp.experiments import closed_loop
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult

P = closed_loop.Params.check(repeats=2)
LONG = closed_loop.Params.check(hours=6)


def made(p: closed_loop.Params) -> tuple[list[RunSpec], list[RunResult], pd.DataFrame]:
    """vLLM pinned and preempting, VAMP not: test data over the whole span."""
    specs, runs = closed_loop.specs(p), []
    for s in specs:
        slow = s.ratio_pct == 0
        one = run(s, ttft_s=140.0 if slow else 2.6, hit_pct=0.1 if slow else 60.0, turns=int(p.run_s / 145 / 4))
        one.timeline["t_s"] *= p.run_s / one.timeline["t_s"].iloc[-1]
        one.timeline["free_blk"] = (one.timeline["pool_blk"] - 1) * (0.03 if slow else 0.3)
        one.timeline["waiting"] = 5.0 if slow else 0.0
        one.preemption_s = [i * p.run_s / 2400 for i in range(2400)] if slow else [5.0]
        q = one.requests
        later_s = q["arrival_s"] * (p.run_s / float(q["finish_s"].max()) - 1)
        for column in ("arrival_s", "first_token_s", "finish_s"):
            q[column] += later_s
        one.meta |= {"label": "test data"}
        runs.append(one)
    return specs, runs, closed_loop.bins(p, specs, runs)


def test_specs_are_agents_for_a_fixed_time() -> None:
    specs = closed_loop.specs(P)
    assert [(s.system, s.seed) for s in specs] == [("vLLM", 0), ("vLLM", 1), ("VAMP-15", 0), ("VAMP-15", 1)]
    assert all(s.fixed_time and s.max_virtual_s == 3 * 3600 and s.workload.kind == "agents" for s in specs)


def test_values_of_the_final_half_hour() -> None:
    own = {m.id: m for m in closed_loop.measured(P, *made(P))}
    assert own["closed.final.vllm.kv_util"].value == pytest.approx(0.97, abs=0.01)
    assert own["closed.final.vllm.waiting"].value == pytest.approx(5.0)
    assert own["closed.final.vllm.preemptions"].value == pytest.approx(400, abs=2)
    assert own["closed.final.vamp15.ttft_mean"].value == pytest.approx(2.6)
    assert own["fig6.vamp15.warmup_preemptions"].value == (1, 1)
    assert own["closed.final.vllm.waiting"].n == 2
    assert "3 h instead of six" in own["closed.final.vllm.waiting"].note
    assert "closed.vllm.preemptions_total" not in own


def test_six_hours_measure_the_total_too() -> None:
    own = {m.id: m for m in closed_loop.measured(LONG, *made(LONG))}
    assert own["closed.vllm.preemptions_total"].value == 2400
    assert own["closed.vllm.preemptions_total"].note == ""
    assert LONG.span == "six hours" and "3 of the paper's 6" in P.span


@pytest.mark.usefixtures("checkout")
def test_results_table_and_figure() -> None:
    specs, runs, rows = made(P)
    saved = closed_loop.save(P, specs, runs, rows)
    assert saved.claim_lines() == "C5: trend (8 of 8 deciding values)"
    assert saved.verdicts["closed.vllm.preemptions_total"] == "not_run"
    assert saved.verdicts["closed.cap"] == "cited"
    noted = {r["id"]: r["note"] for r in saved.values}
    assert noted["closed.final.vllm.ttft_mean"].startswith("fitted to")
    assert "fitted" not in noted["closed.final.vamp15.ttft_mean"]
    assert list(closed_loop.table(P, rows)["bin"]) == ["first", "middle", "final"] * 4
    assert len(closed_loop.turns_table(specs, runs)) == 4
    drawn = pd.read_csv(closed_loop.figure(P, rows, runs).csv)
    assert drawn.groupby("system").size().to_dict() == {"vLLM": 6, "VAMP-15": 6}
    assert drawn["middle_h"].min() == 0.25


def test_swapped_systems_are_a_miss() -> None:
    """Negative control."""
    specs, runs, _ = made(P)
    swapped = runs[2:] + runs[:2]
    own = closed_loop.measured(P, specs, swapped, closed_loop.bins(P, specs, swapped))
    rows = {r["id"]: r["verdict"] for r in closed_loop.results.judged_rows(closed_loop.COVERS, own, "sim")}
    assert {rows[f"closed.final.vamp15.{m}"] for m in ("kv_util", "waiting", "preemptions", "ttft_mean")} == {"miss"}


@pytest.mark.parametrize("given", [{"hours": 1.0}, {"scale": 0.5}, {"backend": "cpu"}])
def test_a_short_scaled_or_live_run_measures_nothing(given: dict[str, object]) -> None:
    p = closed_loop.Params.check(**given)
    assert p.why_not
    assert closed_loop.measured(p, [], [], pd.DataFrame()) == []


def test_a_live_run_is_shortened_as_its_platform_says() -> None:
    p = closed_loop.Params.check(backend="cpu")
    assert p.run_s == pytest.approx(3 * 3600 / 200) and p.bin_s == pytest.approx(9)
    assert p.platform == "cpu_tiny_moe"
    with pytest.raises(ConfigError, match="hours"):
        closed_loop.Params.check(hours=0)


def test_a_bin_without_a_first_token_gives_no_mean() -> None:
    specs, runs, rows = made(P)
    rows.loc[(rows["system"] == "VAMP-15") & (rows["start_s"] == rows["start_s"].max()), "ttft_mean_s"] = float("nan")
    own = {m.id for m in closed_loop.measured(P, specs, runs, rows)}
    assert "closed.final.vamp15.ttft_mean" not in own and "closed.final.vllm.ttft_mean" in own


def test_every_assumption_is_shown() -> None:
    shown = closed_loop.assumptions()
    assert "history_tok" in set(shown["name"]) and shown["value"].notna().all()


def test_figures_go_where_results_go(checkout: Path) -> None:  # noqa: F811
    _, runs, rows = made(P)
    assert closed_loop.figure(P, rows, runs).png.is_relative_to(checkout)
