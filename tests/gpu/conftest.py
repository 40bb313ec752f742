"""Everything in this folder needs a CUDA device and is skipped, with the reason, where there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vamp.calibrate.rig import Rig

HERE = Path(__file__).parent


def missing() -> str:
    """Why these tests cannot run; "" if they can."""
    for module in ("torch", "triton", "cuda.bindings"):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"{module} is not installed"
    import torch

    return "" if torch.cuda.is_available() else "no CUDA device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    reason = missing() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(params=["small", "ragged"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    from vamp.calibrate import rig as rigs

    built = rigs.build({"small": rigs.SMALL, "ragged": rigs.RAGGED}[request.param])
    yield built
    built.close()
