from __future__ import annotations

from pathlib import Path

import pytest

from vamp.errors import ConfigError
from vamp.experiments import decisions, fig9, table1, table2, table4
from vamp.experiments.parameters import provenance


def test_defaults() -> None:
    p = table4.Params.check()
    assert (p.seeds, p.n_jobs, p.system, p.why_not) == ([0, 1], None, "VAMP-15", "")
    assert fig9.Params.check().seeds == [0]
    assert fig9.Params.check(jobs=2, seed=3, repeats=2).seeds == [3, 4]


def test_an_integer_ratio_is_fine() -> None:
    assert table4.Params.check(ratio=20).system == "VAMP-20"
    assert table4.Params.check(ratio=12.5).system == "VAMP-12.5"


@pytest.mark.parametrize("text", ["[0, 15]", "0,15", "15,0", " 0 , 15 "])
def test_lists_may_come_as_text(text: str) -> None:
    assert fig9.Params.check(ratios=text).ratios == (0.0, 15.0)


@pytest.mark.parametrize(
    ("model", "given", "named"),
    [
        (table4.Params, {"ratio": 60}, r"parameter\.ratio.*less than or equal to 50.*60"),
        (table4.Params, {"ratio": 0}, r"parameter\.ratio.*greater than 0"),
        (table4.Params, {"ratios": [15]}, r"parameter\.ratios.*known: backend, seed.*sensitivity"),
        (table4.Params, {"repeats": 0}, r"parameter\.repeats.*greater than or equal to 1"),
        (table4.Params, {"scale": 1.5}, r"parameter\.scale.*less than or equal to 1"),
        (table4.Params, {"platform": "h300"}, r"unknown platform 'h300'; known: .*h100_pcie_tp2"),
        (table4.Params, {"trace": "/nowhere/x.jsonl"}, r"trace /nowhere/x\.jsonl does not exist"),
        (table1.Params, {"backend": "cuda"}, r"this notebook does not run on backend 'cuda'"),
        (table1.Params, {"backend": "gpu"}, r"parameter\.backend"),
        (table2.Params, {"ratios": []}, r"parameter\.ratios.*at least 1"),
        (table2.Params, {"ratios": "a,b"}, r"parameter\.ratios"),
        (fig9.Params, {"concurrency": [0]}, r"parameter\.concurrency.*greater than or equal to 1.*0"),
        (decisions.Params, {"concurrency": [16.5]}, r"parameter\.concurrency.*integer"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_limit(
    model: type[table1.Params], given: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        model.check(**given)
    assert "\n" not in str(caught.value)


def test_what_is_not_the_papers_workload_says_why(tmp_path: Path) -> None:
    assert "scale 0.5" in table4.Params.check(scale=0.5).why_not
    assert "VAMP-20" in table4.Params.check(ratio=20).why_not
    assert "another trace" in table4.Params.check(trace=str(tmp_path)).why_not


def test_provenance_says_of_every_coefficient_where_it_is_from() -> None:
    table = provenance(("h100_pcie_tp2",))
    assert {"step_ms", "growth_tok", "h2d_gbps"} <= set(table["coefficient"])
    assert table["provenance"].str.contains("fitted|assumed|measured|paper").all()
    assert (table["value"] != "").all()
