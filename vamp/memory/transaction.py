"""Steps that move page runs, all of them or none.

A step maps or unmaps one run at one place, in the driver and in the ledger alike, and has an inverse. When a driver
call fails, the steps taken are undone in reverse order. Contents survive that: nothing is written before `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from vamp.errors import DriverError, FatalRemapError, InvariantError, RemapError
from vamp.memory.addresses import Addresses
from vamp.memory.driver import Access, VmmDriver
from vamp.memory.ledger import Ledger, Run
from vamp.memory.region import Region
from vamp.memory.spans import Place


@dataclass(frozen=True, slots=True)
class Step:
    """Attach the run at the place, or detach it from there."""

    attach: bool
    run: Run
    place: Place

    def inverse(self) -> Step:
        return Step(not self.attach, self.run, self.place)


class Transaction:
    """Used again and again: `run` opens it, `commit` or `abort` closes it.

    Attributes:
        taken: steps that were done and not undone; empty when closed.
        broken: why undoing failed; nothing may move after that. "" if it never did.
    """

    def __init__(self, driver: VmmDriver, ledger: Ledger, addresses: Addresses) -> None:
        self._driver, self._ledger, self._addresses = driver, ledger, addresses
        self.taken: list[Step] = []
        self.broken = ""

    def run(self, steps: Iterable[Step]) -> None:
        """Take the steps in order.

        Raises:
            RemapError: a driver call failed; the steps before it are undone.
            FatalRemapError: and undoing failed as well.
            InvariantError: earlier steps are neither committed nor undone.
        """
        if self.taken or self.broken:
            raise InvariantError(
                f"{len(self.taken)} steps are open, commit or abort them before the next remap. {self.broken}"
            )
        try:
            for step in steps:
                self._take(step, self.taken.append)
        except DriverError as err:
            n_taken = len(self.taken)
            self.abort()
            raise RemapError(f"pages could not be remapped, {n_taken} steps are undone: {err}") from err
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Undo all steps, the last one first.

        Raises:
            FatalRemapError: a driver call failed. The ledger says where every run is, the message what is left.
        """
        while self.taken:
            last = self.taken[-1]
            try:
                self._take(last.inverse(), lambda _: self.taken.pop())
            except DriverError as err:
                self._break(f"undoing {last} failed: {err}")

    def commit(self, clean: Callable[[Place], int]) -> None:
        """Overwrite every run that has a new home, so that no byte of its old role is seen, and close.

        Args:
            clean: the byte for a place.

        Raises:
            FatalRemapError: the driver could not write; other ranks may have committed already.
        """
        try:
            for region, byte in self._dirty(clean):
                self._driver.fill(region.address, region.nbytes, byte)
        except DriverError as err:
            self._break(f"pages moved but could not be overwritten: {err}")
        self.taken.clear()

    def _dirty(self, clean: Callable[[Place], int]) -> Iterator[tuple[Region, int]]:
        """What has a new home, neighbours in one piece: a fill costs the same whatever its size."""
        moved = [
            (self._addresses.pages(step.place, step.run.n_pages), clean(step.place))
            for step in self.taken
            if step.attach and not self._ledger.is_alias(step.run, step.place)
        ]
        moved.sort(key=lambda piece: piece[0].address)
        while moved:
            region, byte = moved[0]
            n = 1
            while n < len(moved) and moved[n] == (Region(region.end, moved[n][0].nbytes), byte):
                region = Region(region.address, region.nbytes + moved[n][0].nbytes)
                n += 1
            yield region, byte
            del moved[:n]

    def _take(self, step: Step, note: Callable[[Step], object]) -> None:
        """The driver call, the ledger, the note; a mapping that could not be made accessible counts as made."""
        at = self._addresses.pages(step.place, step.run.n_pages)
        if not step.attach:
            self._driver.unmap(at.address)
            self._ledger.detach(step.run, step.place)
            note(step)
            return
        self._driver.map(step.run.handle, at.address)
        self._ledger.attach(step.run, step.place)
        note(step)
        self._driver.protect(at.address, at.nbytes, Access.READ_WRITE)

    def _break(self, reason: str) -> NoReturn:
        free = [int(run.handle) for run, owner in self._ledger.runs.items() if owner is None]
        self.broken = (
            f"{reason}; {len(self.taken)} steps are not undone, {self._ledger.holdings()}, handles of free runs: "
            f"{free}; stop this rank"
        )
        raise FatalRemapError(self.broken)
