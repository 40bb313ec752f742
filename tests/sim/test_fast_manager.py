"""The shortcut through KVCacheManager changes nothing: every record is equal with and without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from tests.sim.workload import sessions
from vamp.experiments.spec import make_spec
from vamp.sim import fast_manager
from vamp.sim.platforms import load_platform
from vamp.sim.run import simulate

SMALL = replace(load_platform("h100_pcie_tp2"), base_blk=120)


@pytest.mark.parametrize("ratio", [0, 15])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_equal_with_and_without(monkeypatch: pytest.MonkeyPatch, ratio: float, asynchronous: bool) -> None:
    # Replies of 700 tokens cross block boundaries while decoding, in a pool that evicts and preempts.
    trace = sessions(6, 4, 3_000, output_tok=700)
    spec = make_spec(workload={"kind": "replay"}, ratio_pct=ratio, async_scheduling=asynchronous)
    fast = simulate(spec, SMALL, trace)
    monkeypatch.setattr(fast_manager.DecodeMemo, "install", lambda self: None)
    slow = simulate(spec, SMALL, trace)
    pd.testing.assert_frame_equal(fast.requests, slow.requests)
    pd.testing.assert_frame_equal(fast.timeline, slow.timeline)
    assert fast.preemption_s == slow.preemption_s
    assert fast.decisions == slow.decisions
    assert len(fast.preemption_s) > 0 or ratio


def test_a_memo_that_skips_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the block-boundary key the replies of two runs differ or the scheduler fails."""
    trace = sessions(6, 3, 3_000, output_tok=700)
    spec = make_spec(workload={"kind": "replay"}, async_scheduling=False)
    good = simulate(spec, SMALL, trace)

    def reckless(self: Any, request: Any, num_new_tokens: int, *args: Any, **kwargs: Any) -> Any:
        if num_new_tokens == 1 and request.num_output_tokens > 2:
            return self.manager.empty_kv_cache_blocks
        return self._allocate(request, num_new_tokens, *args, **kwargs)

    monkeypatch.setattr(fast_manager.DecodeMemo, "allocate_slots", reckless)
    assert not simulate(spec, SMALL, trace).requests.equals(good.requests)
