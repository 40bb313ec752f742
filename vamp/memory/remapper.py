"""Moves the boundary between experts and KV cache: real pages, on one rank.

The tensors of experts and KV cache keep their addresses for life. Offloading a group takes its pages away from the
experts' addresses, puts the staging buffer's pages there instead, and adds the pages to the tails of the KV tensors;
restoring does the reverse, step by step. Section IV-C, with an alias in place of the paper's patched kernel.

One thread, between two steps: no kernel may be queued from `prepare` until `finish` returns. Kernels of the step before
may still run while pages are added to the KV tails, which they do not read; `prepare` says when they must have ended.

A growth may also be held: `prepare` and `finish` then only add pages to the KV tails, and the experts keep their
addresses mapped to the same pages until `leave`. In between no kernel may read experts; KV cache may be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby

from vamp.errors import FatalRemapError, InvariantError, RemapError
from vamp.memory.addresses import Addresses
from vamp.memory.driver import Guard, VmmDriver
from vamp.memory.geometry import PoolPlan
from vamp.memory.ledger import Holdings, Ledger, Run
from vamp.memory.spans import ExpertSpan, KvSpan, Place, ShardRange, SpanLayout
from vamp.memory.transaction import Step, Transaction
from vamp.memory.vote import Ballot, Verdict, vote

KV_BYTE = 0x00
"""New KV pages read as zeros: recurrent states and padded slots count on it."""
WEIGHT_BYTE = 0xFF
"""Experts not yet loaded and staging buffers not yet filled read as NaN: a copy that was missed is not silent."""


MoveIn = Callable[[Addresses, int], None]
"""Called for each MoE layer, first to last, once its pages are mapped and before any later page is created: copy the
layer's experts to their addresses and give back the memory that they came from."""


class Remapper:
    """Attributes:
    layout: the page arithmetic.
    addresses: where tensors and shards are; valid for life.
    ledger: who owns which page run; read it, do not change it.
    n_groups: groups offloaded, as last committed.
    held: a growth was committed whose pages have yet to leave the experts' addresses.
    """

    def __init__(
        self,
        plan: PoolPlan,
        driver: VmmDriver,
        *,
        guard: Guard = Guard.HOLE,
        rank: int = 0,
        move_in: MoveIn | None = None,
    ) -> None:
        """Reserve all addresses, create all pages, map them with nothing offloaded.

        Args:
            move_in: brings in the experts layer by layer, so that no more than one layer is there twice.
            guard: what addresses without a page do when read: above all KV tails that are not there yet.

        Raises:
            GeometryError: plan and page size cannot be laid out.
            DriverError, RemapError: the driver refused; everything made so far is given back.
        """
        self.layout = SpanLayout(plan)
        self.ledger = Ledger()
        self.n_groups = 0
        self.rank = rank
        self._plan, self._driver = plan, driver
        self._start: dict[Place, Run] = {}
        self._pending: Ballot | None = None
        self._n_left = 0  # groups whose pages have left the experts' addresses
        self._held: list[Step] = []  # what makes the committed rest leave
        self._to_hold: list[Step] = []  # what a remap that is not finished yet adds to that
        self._resources = ExitStack()
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            self.addresses = Addresses(self.layout, driver, guard, self._resources)
            self._transaction = Transaction(driver, self.ledger, self.addresses)
            for layer, runs in groupby(self.layout.runs(), key=_layer):
                self._create_pages(runs)
                if layer is not None and move_in is not None:
                    move_in(self.addresses, layer)
            self.ledger.seal()
            on_failure.pop_all()

    def _create_pages(self, runs: Iterable[tuple[Place, int]]) -> None:
        steps = []
        for place, n in runs:
            run = Run(self._driver.create(n * self.layout.page_bytes), n)
            self._resources.callback(self._driver.destroy, run.handle)
            self.ledger.add(run)
            self._start[place] = run
            steps.append(Step(True, run, place))
        self._transaction.run(steps)
        self._transaction.commit(_clean_byte)

    def close(self) -> None:
        """Give everything back, open remap or not. Tensors over these addresses are void from here on."""
        for place, run in list(self.ledger.mapped.items()):
            self._driver.unmap(self.addresses.pages(place, run.n_pages).address)
            self.ledger.detach(run, place)
        self._resources.close()

    # moving the boundary

    def prepare(
        self, seq: int, n_groups: int, settle: Callable[[], None] = lambda: None, *, hold: bool = False
    ) -> Ballot:
        """Do everything that can fail, so that `n_groups` are offloaded; contents stay as they are for now.

        Restoring needs the KV blocks at and above the new capacity unused: the caller guarantees it.

        Args:
            seq: number of the remap, the same on all ranks.
            settle: called before the first page leaves an address that a kernel may read; returns when none does.
            hold: leave the experts' addresses of a growth alone until `leave`, and do not call `settle`. Growth upon
                growth may be held.

        Returns:
            This rank's ballot; with an error, nothing was changed.

        Raises:
            FatalRemapError: it failed and could not be undone.
            InvariantError: the remap before was not finished, or is held and this one is not.
        """
        if self._pending is not None:
            raise InvariantError(f"remap {self._pending.seq} is not finished; finish it before remap {seq}")
        if self.held and not (hold and n_groups >= self.n_groups):
            raise InvariantError(f"{len(self._held)} steps are held; call leave before remap {seq}")
        before, error = self.capacity_blk, ""
        try:
            self._transaction.run(self._steps_to(n_groups, settle, hold))
        except RemapError as err:
            error = str(err)
        after = before if error else self._plan.capacity_blk(n_groups)
        self._pending = Ballot(self.rank, seq, n_groups, before, after, error)
        return self._pending

    def finish(self, verdict: Verdict) -> tuple[ShardRange, ...]:
        """Commit or undo what `prepare` did.

        When committed, new KV pages are zero, and what came back to experts is overwritten with WEIGHT_BYTE.

        Returns:
            Shards whose weights must be copied back before the next forward.

        Raises:
            FatalRemapError: undoing or overwriting failed.
            InvariantError: there is no such remap, or this rank voted against a verdict to commit.
        """
        ballot = self._pending
        if ballot is None or ballot.seq != verdict.seq or (verdict.commit and ballot.error):
            raise InvariantError(f"{verdict} does not fit this rank's ballot {ballot}")
        self._pending = None
        to_hold, self._to_hold = self._to_hold, []
        if not verdict.commit:
            self._transaction.abort()
            return ()
        self._transaction.commit(_clean_byte)
        was, self.n_groups = self.n_groups, ballot.n_groups
        self._held += to_hold
        if not self.held:
            self._n_left = self.n_groups
        return self.layout.restored(was, self.n_groups)

    @property
    def held(self) -> bool:
        return bool(self._held)

    def leave(self) -> None:
        """Have the pages of held growths leave the experts' addresses, where staging pages then stand in for them.

        No kernel may read experts during the call.

        Raises:
            FatalRemapError: it failed; other ranks may have gone on already.
            InvariantError: a remap is not finished.
        """
        try:
            self._transaction.run(self._held)
        except RemapError as err:
            raise FatalRemapError(f"pages are KV cache already but could not leave the experts: {err}") from err
        self._transaction.commit(_clean_byte)
        self._held = []
        self._n_left = self.n_groups

    def remap(self, n_groups: int) -> tuple[ShardRange, ...]:
        """`prepare` and `finish` where there is one rank.

        Raises:
            RemapError: it failed; nothing was changed.
            FatalRemapError, InvariantError: as above.
        """
        verdict = vote([self.prepare(0, n_groups)], 1)
        restored = self.finish(verdict)
        if not verdict.commit:
            raise RemapError(verdict.reason)
        return restored

    def _steps_to(self, n_groups: int, settle: Callable[[], None], hold: bool) -> Iterator[Step]:
        self._to_hold = []
        if not 0 <= n_groups <= self._plan.limit_groups:
            raise RemapError(
                f"{n_groups} groups cannot be offloaded; the limit is 0 to {self._plan.limit_groups}: ask for less"
            )
        low, high = sorted((self.n_groups, n_groups))
        joins, leaves = self._offload(range(low, high))
        if n_groups >= self.n_groups:
            yield from joins
            if hold:
                self._to_hold = leaves
                return
            settle()
            yield from leaves
        else:
            settle()
            for step in (*reversed(leaves), *reversed(joins)):
                yield step.inverse()

    def _offload(self, seqs: Iterable[int]) -> tuple[list[Step], list[Step]]:
        """First the experts' pages join the KV tails; then they leave, and staging pages stand in for them."""
        joins, leaves = [], []
        for seq in seqs:
            group = self.layout.group(seq)
            joins += [Step(True, self._start[expert], kv) for expert, kv in group.pages]
            leaves += [Step(False, self._start[expert], expert) for expert, _ in group.pages]
            leaves += [Step(True, self._start[staged], expert) for staged, expert in group.aliases]
        return joins, leaves

    # what is where

    @property
    def capacity_blk(self) -> int:
        """KV blocks that every tensor holds, as last committed."""
        return self._plan.capacity_blk(self.n_groups)

    @property
    def holdings(self) -> Holdings:
        """Pages by owner."""
        return self.ledger.holdings()

    def offloaded(self, layer: int) -> ShardRange:
        """Shards of a MoE layer that must be staged before it runs; empty if all are resident."""
        return self.layout.offloaded(layer, self.n_groups)

    def check(self) -> None:
        """The ledger, and between remaps every page's place and the capacity. O(pages).

        Raises:
            InvariantError: names what is wrong.
        """
        self.ledger.check()
        if self._transaction.broken:
            raise InvariantError(self._transaction.broken)
        if self._pending is not None:
            return
        wrong = self._expected().items() ^ self.ledger.mapped.items()
        if wrong:
            raise InvariantError(
                f"{len(wrong)} mappings do not fit {self.n_groups} groups, such as {min(wrong, key=str)}"
            )
        backed = self._backed_blk()
        if backed != self.capacity_blk:
            raise InvariantError(f"KV pages back {backed} blocks; {self.n_groups} groups make {self.capacity_blk}")

    def _expected(self) -> dict[Place, Run]:
        """What must be mapped where at this boundary."""
        at = dict(self._start)
        joins, _ = self._offload(range(self.n_groups))
        _, leaves = self._offload(range(self._n_left))
        for step in (*joins, *leaves):
            if step.attach:
                at[step.place] = step.run
            else:
                del at[step.place]
        return at

    def _backed_blk(self) -> int:
        """KV blocks by the pages that are mapped, without a gap, in the shortest tensor."""
        pages = [0] * self._plan.kv.n_tensors
        for place in sorted(self.ledger.mapped, key=lambda place: place.page):
            if isinstance(place.span, KvSpan) and place.page == pages[place.span.tensor]:
                pages[place.span.tensor] += self.ledger.mapped[place].n_pages
        return min(pages) * self.layout.page_bytes // self._plan.kv.page_bytes


def _layer(run: tuple[Place, int]) -> int | None:
    """The MoE layer whose experts start out in this run; None for KV cache and staging buffers."""
    span = run[0].span
    return span.layer if isinstance(span, ExpertSpan) else None


def _clean_byte(place: Place) -> int:
    return KV_BYTE if isinstance(place.span, KvSpan) else WEIGHT_BYTE
