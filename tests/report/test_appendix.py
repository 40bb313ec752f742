"""The committed appendix is the generated one."""

from __future__ import annotations

import re

from vamp.experiments.start import overview
from vamp.report.appendix import appendix_path, appendix_text
from vamp.report.claims import load_claims


def test_the_committed_file_is_what_is_generated() -> None:
    assert appendix_path().read_text(encoding="utf-8") == appendix_text(), "run: vamp report --appendix"


def test_every_claim_and_every_notebook_is_in_it_once() -> None:
    text = appendix_text()
    assert [f"C{n}" for n in re.findall(r"^\* \*\*\(C(\d+)\)\*\*", text, re.M)] == [c.id for c in load_claims()]
    assert re.findall(r"vamp reproduce (\w+)`", text) == [e.stem for e in overview().entries]


def test_a_claim_names_the_experiments_that_decide_it() -> None:
    text = appendix_text()
    number = re.search(r"\*\*\((E\d+)\) Fig. 6: agents in closed loop", text)
    claim = next(line for line in text.splitlines() if line.startswith("* **(C5)**"))
    assert number and number[1] in claim and "no notebook" not in claim
