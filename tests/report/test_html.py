from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from vamp.report import results, theme
from vamp.report.html import MISSED, build_report, collect
from vamp.report.values import load_values
from vamp.report.verdicts import Measured

H100 = "h100_pcie_tp2"


def save(value: float, notebook: str = "07_table4_replay", backend: str = "sim") -> None:
    measured = [Measured("table4.diff.tpot", H100, value, n=2)]
    results.save(notebook, backend=backend, parameters={}, covers=("table4.*",), measured=measured)


def page(checkout: Path) -> str:
    return (checkout / "artifact" / "report" / "index.html").read_text()


class Balanced(HTMLParser):
    """Counts opened and closed tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_without_any_result_every_id_is_there(checkout: Path) -> None:
    assert build_report() == 0
    text = page(checkout)
    assert all(f">{value_id}<" in text for value_id in load_values())
    rows = collect().collected[0].rows
    assert {row["verdict"] for row in rows.values()} == {"not_run", "cited"}


def test_the_page_is_well_formed_and_loads_nothing(checkout: Path) -> None:
    save(31.0)
    theme.save_figure(Figure(), pd.DataFrame(), notebook="07_table4_replay", name="f", backend="sim")
    build_report()
    text = page(checkout)
    parser = Balanced()
    parser.feed(text)
    assert (parser.open, parser.wrong) == ([], [])
    sources = re.findall(r"(?:src|href)=\"([^#\"][^\"]{4})", text)
    assert sources == ["data:"]


def test_a_claim_that_does_not_hold_is_loud(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(31.0)
    assert build_report() == 0
    assert "C3 trend" in capsys.readouterr().out
    save(400.0)
    assert build_report() == MISSED
    told = capsys.readouterr()
    assert "C3 miss" in told.out
    assert "claim C3 is a miss with backend sim: table4.diff.tpot" in told.err
    assert "Claim C3 is a <b>miss</b>" in page(checkout)


def test_backends_stand_side_by_side(checkout: Path) -> None:
    save(31.0)
    save(32.0, backend="cuda")
    build_report()
    assert [c.backend for c in collect().collected] == ["cuda", "sim"]
    cuda, sim = (c.rows["table4.diff.tpot"] for c in collect().collected)
    assert (cuda["verdict"], sim["verdict"]) == ("match", "trend")


def test_a_measured_row_wins_over_one_that_did_not_run(checkout: Path) -> None:
    save(31.0, notebook="07_table4_replay")
    results.save("zz_later", backend="sim", parameters={}, covers=("table4.*",), measured=[])
    assert collect().collected[0].rows["table4.diff.tpot"]["verdict"] == "trend"


def test_a_damaged_file_is_named_and_does_not_stop_the_page(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(31.0)
    broken = results.results_path("01_table1_platforms", "sim")
    broken.parent.mkdir()
    broken.write_text("{")
    assert build_report() == 1
    assert "01_table1_platforms/results.sim.json is no results file" in capsys.readouterr().err
    assert "C3" in page(checkout)


def test_text_from_results_is_escaped(checkout: Path) -> None:
    results.save("x", backend="sim", parameters={"trace": "<script>"}, covers=("table4.*",), measured=[])
    build_report()
    assert "<script>" not in page(checkout)
    assert "&lt;script&gt;" in page(checkout)
