from __future__ import annotations

import pytest

from vamp.report.tables import delta, number, verdict_table, with_sd


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (26.1, "26.1"), (0.0213456, "0.02135"), (1234.5, "1234"), (1354, "1,354"), (None, "none"),
        ((9, 11), "9..11"), ((10, 15, 20), "10, 15, 20"), ("0.15.1", "0.15.1"), (0, "0"), (0.0, "0"),
    ],
)  # fmt: skip
def test_number(x: object, text: str) -> None:
    assert number(x) == text


def test_with_sd() -> None:
    assert [with_sd(26.1, 0.71), with_sd(26.1, None), with_sd(None, None)] == ["26.1 ± 0.71", "26.1", "none"]


def test_delta() -> None:
    assert [delta(26.1, 28.0), delta(-99.9, -99.0), delta(0, 3), delta((9, 11), (8, 12)), delta(None, 1)] == [
        "+7 %", "+1 %", "+3", "", "",
    ]  # fmt: skip


def test_a_boundary_that_was_not_crossed_reads_none() -> None:
    row = {
        "id": "x",
        "paper": None,
        "measured": None,
        "sd": None,
        "unit": "",
        "tolerance": "",
        "verdict": "trend",
    }
    assert verdict_table([row], "sim").loc[0, "measured"] == "none"
    assert verdict_table([row | {"verdict": "not_run"}], "sim").loc[0, "measured"] == ""
