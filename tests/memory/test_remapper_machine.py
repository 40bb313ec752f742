"""Any sequence of growing, shrinking, failing, voting, writing and staging, against a model in plain bytes."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.memory.helpers import (
    PAGE,
    FailingDriver,
    Host,
    kernel_mappings,
    kv_pages,
    ledger_mappings,
    small_plans,
)
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.geometry import PoolPlan
from vamp.memory.region import Region, bytes_at
from vamp.memory.remapper import Remapper
from vamp.memory.spans import ExpertSpan
from vamp.memory.vote import Ballot, vote


class RemapperMachine(RuleBasedStateMachine):
    """The model: bytes of each KV tensor, and which layer's shards each staging buffer holds."""

    @initialize(plan=small_plans(), seed=st.integers(0, 99))
    def start(self, plan: PoolPlan, seed: int) -> None:
        self.plan = plan
        self.memfd = MemfdDriver(PAGE)
        self.driver = FailingDriver(self.memfd)
        self.remapper = Remapper(plan, self.driver)
        self.host = Host(plan, seed)
        self.host.load_all(self.remapper)
        self.kv = [np.zeros(n * PAGE, np.uint8) for n in kv_pages(plan, 0)]
        self.physical, self.holdings = self.memfd.physical_bytes(), self.remapper.holdings
        self.seq = 0
        self.open: Ballot | None = None

    def teardown(self) -> None:
        if hasattr(self, "remapper"):
            self.driver.arm()
            self.remapper.close()
            assert self.memfd.physical_bytes() == 0
            self.memfd.close()

    # rules

    @precondition(lambda self: self.open is None)
    @rule(data=st.data(), fail_at=st.none() | st.integers(1, 60))
    def prepare(self, data: st.DataObject, fail_at: int | None) -> None:
        target = data.draw(st.integers(0, self.plan.limit_groups))
        self.seq += 1
        self.driver.arm([] if fail_at is None else [fail_at])
        self.open = self.remapper.prepare(self.seq, target)
        met = fail_at is not None and self.driver.calls >= fail_at
        assert bool(self.open.error) == met
        self.driver.arm()

    @precondition(lambda self: self.open is not None)
    @rule(other_error=st.sampled_from(["", "", "no"]))
    def finish(self, other_error: str) -> None:
        """With a second rank that is ready, or is not."""
        mine = self.open
        assert mine is not None
        other = Ballot(1, mine.seq, mine.n_groups, mine.before_blk, mine.after_blk, other_error)
        verdict = vote([mine, other], 2)
        was = self.remapper.n_groups
        restored = self.remapper.finish(verdict)
        self.open = None
        assert verdict.commit == (not mine.error and not other_error)
        assert self.remapper.n_groups == (mine.n_groups if verdict.commit else was)
        lengths = [n * PAGE for n in kv_pages(self.plan, self.remapper.n_groups)]
        self.kv = [np.resize(np.append(b, np.zeros(n, np.uint8)), n) for b, n in zip(self.kv, lengths, strict=True)]
        for r in restored:
            for t in range(len(self.plan.experts.tensor_bytes)):
                assert np.all(bytes_at(self.remapper.addresses.expert(r.layer, t, r.first, r.last)) == 0xFF)
        self.host.load(self.remapper, restored)

    @precondition(lambda self: self.open is None)
    @rule(seed=st.integers(0, 99))
    def write_kv(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for tensor, model in enumerate(self.kv):
            model[:] = rng.integers(0, 256, len(model), dtype=np.uint8)
            self.kv_view(tensor)[:] = model

    @precondition(lambda self: self.open is None)
    @rule(data=st.data())
    def stage_and_run(self, data: st.DataObject) -> None:
        """Two consecutive layers at a time, as double buffering does."""
        layer = data.draw(st.integers(0, self.plan.experts.n_layers - 1))
        pair = [x for x in (layer, layer + 1) if x < self.plan.experts.n_layers]
        for one in pair:
            self.host.stage(self.remapper, one)
        assert all(self.host.as_kernels_read(self.remapper, one) for one in pair)

    # invariants

    def kv_view(self, tensor: int) -> np.ndarray:
        return bytes_at(Region(self.remapper.addresses.kv(tensor).address, len(self.kv[tensor])))

    @invariant()
    def books_and_kernel_agree(self) -> None:
        self.remapper.check()
        assert ledger_mappings(self.remapper.ledger, self.remapper.addresses) == kernel_mappings(self.memfd)
        assert self.memfd.physical_bytes() == self.physical

    @invariant()
    def pages_are_conserved(self) -> None:
        now, then = self.remapper.holdings, self.holdings
        assert now.free == 0 and now.staging == then.staging
        assert now.expert + now.kv == then.expert + then.kv
        if self.open is None:
            assert now.kv == sum(kv_pages(self.plan, self.remapper.n_groups))

    @invariant()
    def kv_contents_are_the_models(self) -> None:
        if self.open is None:
            assert all(np.array_equal(self.kv_view(t), model) for t, model in enumerate(self.kv))
            assert self.remapper.capacity_blk == min(map(len, self.kv)) // self.plan.kv.page_bytes

    @invariant()
    def resident_experts_are_the_hosts(self) -> None:
        if self.open is not None:
            return
        for layer in range(self.plan.experts.n_layers):
            first = self.remapper.offloaded(layer).first
            for t, size in enumerate(self.plan.experts.tensor_bytes):
                resident = bytes_at(self.remapper.addresses.expert(layer, t))[: first * size]
                assert np.array_equal(resident, self.host.tensors[layer, t][: first * size])

    @invariant()
    def aliases_stand_in_for_the_right_layers(self) -> None:
        for place, run in self.remapper.ledger.mapped.items():
            if self.remapper.ledger.is_alias(run, place):
                home = self.remapper.ledger.runs[run]
                assert home is not None and isinstance(place.span, ExpertSpan)
                eligible = place.span.layer - self.plan.experts.resident_layers
                assert eligible >= 0
                assert (home.span.buffer, home.span.tensor) == (eligible % 2, place.span.tensor)  # type: ignore[union-attr]


RemapperMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=14, deadline=None)
TestRemapperMachine = RemapperMachine.TestCase
