from __future__ import annotations

import json
from pathlib import Path

from vamp.experiments import start
from vamp.paths import root


def test_every_other_notebook_is_listed_with_a_link_that_exists() -> None:
    page = start.overview()
    stems = [entry.stem for entry in page.entries]
    there = sorted(path.stem for path in (root() / "notebooks").glob("*.ipynb"))
    assert stems == [stem for stem in there if stem != start.NOTEBOOK]
    text = page._repr_markdown_()
    assert all(f"]({stem}.ipynb)" in text for stem in stems)
    assert all(entry.title and entry.see for entry in page.entries)


def test_claims_come_from_the_claims_file() -> None:
    claims = {entry.stem: entry.claims for entry in start.overview().entries}
    assert claims["07_table4_replay"] == ("C2", "C3", "C4")
    assert claims["08_fig6_closed_loop"] == ("C5",)


def test_an_entry_is_read_from_the_first_text_cell(tmp_path: Path) -> None:
    source = ["# A title\n", "\n", "Words.\n", "\n", "**You should see** two\n", "lines.\n", "\n", "More."]
    cells = [{"cell_type": "markdown", "source": source}, {"cell_type": "markdown", "source": ["# Other"]}]
    path = tmp_path / "42_made_up.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert start.entry(path) == start.Entry("42_made_up", "A title", "two lines.", ())
    assert repr(start.overview(tmp_path)) == "42_made_up: A title"


def test_the_quick_look_is_table_1() -> None:
    assert start.verdict() == "expert weights per GPU: 72.0 and 36.0 GiB (paper: 72.0 and 36.0)"
    assert start.quick_look().loc["expert shards per group"].tolist() == ["2", "4"]
