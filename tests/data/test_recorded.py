"""What was recorded on GPUs says where, and its summaries follow from its raw records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vamp.paths import data_dir

FILES = sorted((data_dir() / "recorded").glob("*.json"))


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data_dir() / "recorded" / name).read_text())
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_recording_names_its_gpu_and_how_it_was_made(path: Any) -> None:
    found = json.loads(path.read_text())
    assert found["environment"]["gpu"] and found["environment"]["gpu_count"] >= 1
    assert (
        found["what"] and found["command"].startswith(("python -m tools.gpu.", "python -m vamp.")) and found["recorded"]
    )
    if "H200" in found["environment"]["gpu"]:
        assert "H100 PCIe" not in found["label"] and path.stem.startswith("h200")


def test_there_are_recordings() -> None:
    assert {path.stem for path in FILES} >= {"h200_tp2_rank_cliff", "h200_tp2_rank_engine", "h200_memory"}


def test_the_cliffs_rows_follow_from_its_requests() -> None:
    for run in load("h200_tp2_rank_cliff.json")["runs"]:
        steady = [r for r in run["requests"] if r["turn"] > 0]
        ttft = sorted(r["first_s"] - r["sent_s"] for r in steady)
        assert ttft[int(0.99 * len(ttft))] == pytest.approx(run["ttft_p99_s"], abs=1e-4)
        tpot = [(r["end_s"] - r["first_s"]) * 1e3 / (r["output_tok"] - 1) for r in steady]
        assert sum(tpot) / len(tpot) == pytest.approx(run["tpot_ms"], rel=1e-4)
        hits = 100 * sum(r["cached_tok"] for r in steady) / sum(r["prompt_tok"] for r in steady)
        assert hits == pytest.approx(run["hit_rate_pct"], rel=1e-9)
        assert run["requests_per_s"] == pytest.approx(len(run["requests"]) / run["wall_s"], rel=1e-9)


def test_answers_were_equal_and_the_control_was_not() -> None:
    rows = load("h200_tp2_rank_engine.json")["equality"]
    control = [row for row in rows if row["phase"] == "tokens, nothing staged"]
    others = [row for row in rows if row not in control]
    assert len(others) == 21 and all(row["equal"] and row["repeatable"] and row["equal_own"] for row in others)
    assert len(control) == 3 and not any(row["equal"] for row in control)
