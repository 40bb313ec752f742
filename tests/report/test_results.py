from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vamp.errors import ClaimError
from vamp.report import results
from vamp.report.verdicts import Measured

H100 = "h100_pcie_tp2"
ROW = {"id", "platform", "paper", "measured", "sd", "n", "unit", "tolerance", "verdict"}
OWN = [
    Measured("table4.vllm.ttft_p90", H100, 28.0, 1.0, 2),
    Measured("table4.vamp15.ttft_p90", H100, 1.2, math.nan, 2),
    Measured("table4.diff.ttft_p90", H100, 23.3, n=2),
]


def save(measured: list[Measured], backend: str = "sim", **more: object) -> results.Results:
    return results.save(
        "07_table4_replay",
        backend=backend,
        parameters={"ratio": np.float64(15), "seeds": (1, 2)},
        covers=("table4.*", "headline.trace_turns"),
        measured=measured,
        seeds=[0, 1],
        **more,  # type: ignore[arg-type]
    )


def read(checkout: Path, backend: str = "sim") -> dict[str, object]:
    path = checkout / "artifact" / "results" / "07_table4_replay" / f"results.{backend}.json"
    return dict(json.loads(path.read_text()))


def test_the_file_has_the_form_that_others_read(checkout: Path) -> None:
    save(OWN)
    raw = read(checkout)
    assert {"notebook", "backend", "parameters", "seeds", "environment", "values"} <= set(raw)
    assert raw["parameters"] == {"ratio": 15, "seeds": [1, 2]}
    values = {v["id"]: v for v in raw["values"]}  # type: ignore[attr-defined]
    assert all(set(v) >= ROW for v in values.values())
    assert len(values) == 22  # 7 metrics, twice and their difference; the number of turns
    vllm = values["table4.vllm.ttft_p90"]
    assert (vllm["paper"], vllm["measured"], vllm["sd"], vllm["n"]) == (26.1, 28.0, 1.0, 2)
    assert (vllm["platform"], vllm["unit"], vllm["verdict"]) == (H100, "s", "trend")
    assert values["table4.vamp15.ttft_p90"]["sd"] is None  # one run has no spread; nan is no JSON


def test_what_was_not_measured_has_no_number(checkout: Path) -> None:
    save(OWN, why_not="too short")
    values = {v["id"]: v for v in read(checkout)["values"]}  # type: ignore[attr-defined]
    tpot, turns = values["table4.vllm.tpot"], values["headline.trace_turns"]
    assert (tpot["measured"], tpot["verdict"], tpot["note"]) == (None, "not_run", "too short")
    assert (turns["measured"], turns["verdict"], turns["note"]) == (None, "cited", "")


def test_another_backend_never_overwrites(checkout: Path) -> None:
    save(OWN)
    before = read(checkout)
    save([Measured("table4.vllm.ttft_p90", H100, 26.0, 0.5, 5)], backend="cuda")
    assert read(checkout) == before
    assert read(checkout, "cuda") != before


def test_nothing_half_written(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(OWN)
    before = read(checkout)

    def full_disk(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space"):
        save([])
    monkeypatch.undo()
    monkeypatch.setenv("VAMP_HOME", str(checkout))
    assert read(checkout) == before
    assert [p.name for p in (checkout / "artifact/results/07_table4_replay").iterdir()] == ["results.sim.json"]


def test_an_id_twice_or_not_covered_is_refused(checkout: Path) -> None:
    with pytest.raises(ClaimError, match="measured twice"):
        save([*OWN, OWN[0]])
    with pytest.raises(ClaimError, match=r"not covered.*fig8\.vamp20"):
        save([Measured("fig8.vamp20.ttft_median", H100, 1.0)])


def test_the_table_and_the_lines(checkout: Path) -> None:
    saved = save(OWN)
    table = saved.table()
    assert list(table.columns) == [
        "id",
        "paper",
        "measured",
        "delta",
        "unit",
        "tolerance",
        "verdict",
        "backend",
    ]
    row = table.set_index("id").loc["table4.vllm.ttft_p90"]
    assert (row["paper"], row["measured"], row["delta"]) == ("26.1", "28 ± 1", "+7 %")
    assert "match 0 · trend 3 · miss 0 · not_run 18 · cited 1" in saved.text()
    assert saved.claim_lines().splitlines() == [
        "C2: not_run (1 of 3 deciding values)",
        "C3: not_run (0 of 1 deciding values)",
        "C4: not_run (0 of 6 deciding values)",
    ]


def test_claims_ignore_another_platform(checkout: Path) -> None:
    bad = Measured("table4.diff.tpot", "h200_tp2_rank", 400.0)
    saved = save([bad])
    assert saved.verdicts["table4.diff.tpot"] == "miss"
    assert "C3: not_run" in saved.claim_lines()
    assert "C3: miss" in save([Measured("table4.diff.tpot", H100, 400.0)]).claim_lines()


def test_round_trip_and_a_broken_file(checkout: Path) -> None:
    saved = save(OWN, summaries=pd.DataFrame({"system": ["vLLM"], "sd": [math.nan]}))
    path = results.results_path("07_table4_replay", "sim")
    assert results.load(path) == saved
    assert saved.summaries == [{"system": "vLLM", "sd": None}]
    path.write_text(path.read_text()[:100])
    with pytest.raises(ClaimError, match=r"07_table4_replay/results\.sim\.json is no results file"):
        results.load(path)


def test_rows_behind_a_result(checkout: Path) -> None:
    frame = pd.DataFrame({"ttft_s": [0.5, 1.5]})
    path = results.save_frame("x", "requests", "sim", frame)
    assert path.name == "requests.sim.parquet"
    pd.testing.assert_frame_equal(pd.read_parquet(path), frame)


def test_values_that_the_simulator_was_fitted_to_say_so() -> None:
    own = [
        results.Measured("table4.vllm.tpot", "h100_pcie_tp2", 173.0),
        results.Measured("table4.vamp15.tpot", "h100_pcie_tp2", 228.0),
    ]
    for backend, noted in (("sim", True), ("cuda", False)):
        rows = {r["id"]: r["note"] for r in results.judged_rows(["table4.*.tpot"], own, backend)}
        assert ("fitted to" in rows["table4.vllm.tpot"]) is noted
        assert "fitted to" not in rows["table4.vamp15.tpot"]


def test_every_fitted_id_is_one_of_the_papers() -> None:
    for value_id in results.fitted_ids():
        results.paper_value(value_id)
