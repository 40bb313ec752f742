"""A real vLLM scheduler on a small pool; no part of it is replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vamp.sim.clock import VirtualClock
from vamp.sim.platforms import load_platform


@pytest.fixture
def build() -> Callable[..., Any]:
    """build(base_blk=..., vamp={...}) -> (scheduler, make_request, clock)."""
    from vamp.sim.engine import build_scheduler

    def make(base_blk: int = 60, vamp: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        platform = replace(load_platform("h100_pcie_tp2"), base_blk=base_blk)
        clock = VirtualClock()
        settings = {"reserve_full_isl": False, "async_scheduling": False, "max_num_batched_tokens": 8192}
        scheduler, make_request = build_scheduler(platform, vamp=vamp, clock=clock, **(settings | kwargs))
        return scheduler, make_request, clock

    return make
