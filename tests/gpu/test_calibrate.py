"""What `vamp calibrate` measures without a model, once each."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("measure", ["kernel_copies", "interference", "driver_calls", "remaps"])
def test_it_measures_something(measure: str) -> None:
    from vamp.calibrate import device

    rows = getattr(device, measure)(1)
    assert rows
    for row in rows:
        spreads = [value["median"] for value in row.model_dump().values() if isinstance(value, dict)]
        assert spreads and min(spreads) > 0
