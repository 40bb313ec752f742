from __future__ import annotations

import pytest

from vamp.errors import ClaimError
from vamp.report.values import load_values, matching_ids, paper_value


def test_every_printed_value_is_there_once() -> None:
    values = load_values()
    assert len(values) == 232
    assert all(value.id == key for key, value in values.items())


def test_kinds_of_values() -> None:
    assert paper_value("table4.vllm.ttft_p90").value == 26.1
    assert paper_value("table4.vllm.ttft_p90").sd == 0.7
    assert paper_value("fig9.h200.band").value == (9, 11)
    assert paper_value("fig9.h200.band").is_range
    assert paper_value("fig9.h100.vllm.boundary").bound == "upper"
    assert paper_value("fig9.h100.vamp25.boundary").value is None


@pytest.mark.parametrize(
    ("value_id", "half_unit"),
    [("table2.vamp15.reclaimed", 0.05), ("table1.h100.kv_pool_per_gpu", 0.005), ("fig9.h200.band", 0.5)],
)
def test_half_a_unit_of_the_last_printed_decimal(value_id: str, half_unit: float) -> None:
    assert paper_value(value_id).half_unit == pytest.approx(half_unit)


def test_an_unknown_id_names_near_ones() -> None:
    with pytest.raises(ClaimError, match=r"table4\.vllm\.ttft_p90"):
        paper_value("table4.vllm.ttft_p9")


def test_an_id_like_no_other_says_where_to_look() -> None:
    with pytest.raises(ClaimError, match=r"paper_values\.yaml"):
        paper_value("@@@@")


def test_patterns() -> None:
    assert matching_ids("table4.*.tpot") == ["table4.vllm.tpot", "table4.vamp15.tpot", "table4.diff.tpot"]
    with pytest.raises(ClaimError, match="fits the pattern"):
        matching_ids("table5.*")
