from __future__ import annotations

import pandas as pd
import pytest

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.experiments import fig7, fig8
from vamp.report.verdicts import judge

SLOW, FAST = 22.0, 1.0


def bins(p: fig7.Params, slow_s: float = SLOW) -> pd.DataFrame:
    specs = fig7.specs(p)
    return fig7.bins(p, specs, [run(s, ttft_s=FAST if s.ratio_pct else slow_s, turns=25) for s in specs])


def medians(p: fig8.Params, slow_s: float = 19.0) -> pd.DataFrame:
    specs = fig8.specs(p)
    return fig8.medians(specs, [run(s, ttft_s=FAST if s.ratio_pct else slow_s, turns=12) for s in specs])


@pytest.mark.usefixtures("checkout")
def test_fig7_bands_and_figure() -> None:
    p = fig7.Params.check()
    found = bins(p)
    assert sorted(set(found["turn"])) == [0, 10, 20]
    assert set(found["sessions"]) == {4.0} and set(found["n"]) == {2}
    assert fig7.band(found, "vLLM") == pytest.approx((SLOW, SLOW))
    saved = fig7.save(p, found)
    assert saved.verdicts["fig7.vllm.ttft_p90_per_bin"] == "trend"
    assert saved.verdicts["fig7.vamp15.ttft_p90_per_bin"] == "trend"
    assert list(fig7.table(p, found).index) == ["0 to 9", "10 to 19", "20 to 29"]
    specs = fig7.specs(p)
    assert fig7.figure(p, [run(s) for s in specs], found).png.stat().st_size > 5000


def test_fig7_one_fast_bin_is_a_miss() -> None:
    """Negative control: the band is of every bin, so one of them decides."""
    p = fig7.Params.check()
    found = bins(p)
    found.loc[(found["system"] == "vLLM") & (found["turn"] == 20), "ttft_s"] = 1.0
    own = {m.id: m for m in fig7.measured(p, found)}["fig7.vllm.ttft_p90_per_bin"]
    assert judge(own, {}, backend="sim").verdict == "miss"


def test_fig7_measures_the_papers_replay_only() -> None:
    for other in ({"ratio": 20.0}, {"scale": 0.5}):
        p = fig7.Params.check(**other)
        assert p.why_not and fig7.measured(p, bins(p)) == []
    one_bin = fig7.Params.check(bin_turns=100)
    assert fig7.band(bins(one_bin), "vLLM") is None and fig7.measured(one_bin, bins(one_bin)) == []


def test_the_decline_is_the_end_of_the_plateau() -> None:
    line = pd.Series([12.0] + [20.0] * 30 + [20.0 - 0.5 * k for k in range(1, 31)])
    assert fig8.decline_turn(line) in range(30, 36)
    assert fig8.decline_turn(pd.Series([12.0] + [20.0] * 30)) is None
    spike = line.copy()
    spike[55] = 30.0  # one turn of one session does not move it
    assert fig8.decline_turn(spike) == fig8.decline_turn(line)


@pytest.mark.usefixtures("checkout")
def test_fig8_values_and_figure() -> None:
    p = fig8.Params.check()
    found = medians(p)
    saved = fig8.save(p, found)
    assert saved.verdicts["fig8.vamp20.ttft_median"] == saved.verdicts["fig8.vllm.ttft_median_peak"] == "trend"
    assert saved.verdicts["fig8.decline_turn"] == "miss"  # made-up runs never decline
    assert saved.claim_lines() == "C6: trend (2 of 2 deciding values)"
    assert len(fig8.table(p, found)) == 6
    assert fig8.figure(p, [run(s) for s in fig8.specs(p)], found).png.stat().st_size > 5000


@pytest.mark.usefixtures("checkout")
def test_fig8_a_baseline_that_stays_low_is_a_miss() -> None:
    p = fig8.Params.check()
    assert fig8.save(p, medians(p, slow_s=2.0)).claim_lines().startswith("C6: miss")
    other = fig8.Params.check(ratio=15)
    assert other.why_not == "VAMP-15 was run" and fig8.measured(other, medians(other)) == []


def test_turns_of_few_sessions_are_left_out() -> None:
    p = fig8.Params.check(repeats=1)
    specs = fig8.specs(p)
    runs = [run(s, sessions=8, turns=5) for s in specs]
    for r in runs:
        r.requests = r.requests[(r.requests["turn"] < 3) | (r.requests["session_id"] == "s0")].reset_index(drop=True)
    assert sorted(set(fig8.medians(specs, runs)["turn"])) == [0, 1, 2]
