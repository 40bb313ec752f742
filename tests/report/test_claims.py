from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from vamp.errors import ClaimError
from vamp.paths import data_dir, root
from vamp.report.claims import claim_verdict, claim_verdicts, load_claims
from vamp.report.rules import load_rules
from vamp.report.values import paper_value
from vamp.report.verdicts import Verdict, is_cited

C2 = next(c for c in load_claims() if c.id == "C2")


def all_of(verdict: Verdict) -> dict[str, Verdict]:
    return dict.fromkeys(C2.decides, verdict)


def test_the_claims_are_those_of_the_paper() -> None:
    paper = yaml.safe_load((data_dir() / "paper_values.yaml").read_text())["claims"]
    assert [c.id for c in load_claims()] == [c["id"] for c in paper]


def test_deciding_values_can_be_measured() -> None:
    for claim in load_claims():
        for value_id in claim.decides:
            assert not is_cited(paper_value(value_id), load_rules().rule(value_id)), value_id


def test_notebooks_exist() -> None:
    named = {n for c in load_claims() for n in c.notebooks}
    assert named and all((root() / "notebooks" / f"{n}.ipynb").is_file() for n in named)


def test_the_weakest_verdict_counts() -> None:
    assert claim_verdict(C2, all_of("match")).verdict == "match"
    assert claim_verdict(C2, all_of("match") | {C2.decides[0]: "trend"}).verdict == "trend"


def test_one_miss_makes_a_miss_even_when_others_did_not_run() -> None:
    got = claim_verdict(C2, all_of("not_run") | {C2.decides[1]: "miss"})
    assert (got.verdict, got.missed) == ("miss", (C2.decides[1],))


def test_a_claim_half_run_stays_open() -> None:
    got = claim_verdict(C2, {C2.decides[0]: "trend"})
    assert (got.verdict, got.ran, got.total) == ("not_run", 1, 3)
    assert claim_verdict(C2, {}).verdict == "not_run"


def test_claims_of_one_notebook() -> None:
    assert [v.claim.id for v in claim_verdicts({}, "07_table4_replay")] == ["C2", "C3", "C4"]


def test_an_unknown_value_id_is_refused(checkout: Path) -> None:
    path = checkout / "artifact" / "claims.yaml"
    path.write_text(path.read_text().replace("table4.diff.tpot", "table4.diff.tpoot"))
    with pytest.raises(ClaimError, match=r"table4\.diff\.tpoot"):
        load_claims()
