"""Who owns each page run, and what is mapped where. Bookkeeping only: `transaction` moves the memory itself.

Every run has exactly one owner, the place where it is at home: in an expert tensor, in a KV tensor or in a staging
buffer; or none, when it is free, which happens only between two steps of a remap. Runs change places and are
neither made nor destroyed once the ledger is sealed. A staging run may also stand in for experts (an alias). A run that
changes hands may be mapped at its new home before it leaves the old one; the new home owns it from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vamp.errors import InvariantError
from vamp.memory.driver import Handle
from vamp.memory.spans import ExpertSpan, KvSpan, Place, StagingSpan


@dataclass(frozen=True, slots=True)
class Run:
    """Physical pages that always move together: one driver handle."""

    handle: Handle
    n_pages: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """Pages by owner. Their sum never changes."""

    expert: int
    kv: int
    staging: int
    free: int


class Ledger:
    def __init__(self) -> None:
        self._owner: dict[Run, Place | None] = {}
        self._at: dict[Place, Run] = {}
        self._leaving: dict[Run, Place] = {}  # still mapped there, but owned by another place
        self._sealed: frozenset[Run] | None = None

    @property
    def mapped(self) -> Mapping[Place, Run]:
        """What is mapped where, aliases included (read-only)."""
        return MappingProxyType(self._at)

    @property
    def runs(self) -> Mapping[Run, Place | None]:
        """Every run and its owner; None is free (read-only)."""
        return MappingProxyType(self._owner)

    def add(self, run: Run) -> None:
        """Enter a new run, free at first.

        Raises:
            InvariantError: it is known, or the ledger is sealed.
        """
        if self._sealed is not None or run in self._owner:
            raise InvariantError(f"{run} cannot be added: the ledger is sealed or has it; pages only move")
        self._owner[run] = None

    def seal(self) -> None:
        """From here on runs only move."""
        self._sealed = frozenset(self._owner)

    def is_alias(self, run: Run, place: Place) -> bool:
        """Whether a run at that place is not at home there, but stands in for experts."""
        owner = self._owner[run]
        return owner is not None and isinstance(owner.span, StagingSpan) and isinstance(place.span, ExpertSpan)

    def attach(self, run: Run, place: Place) -> None:
        """The run is now mapped there: a staging one is an alias at experts, any other is at home there from now on.

        Raises:
            InvariantError: the place is taken, the run is on its way already, or it may not go there.
        """
        owner = self._owner[run]
        alias = self.is_alias(run, place)
        moves = owner is not None and not alias
        if place in self._at or (moves and (run in self._leaving or not _may_move(owner, place))):
            raise InvariantError(f"{run} of {owner} cannot be attached at {place}, which has {self._at.get(place)}")
        if not alias:
            self._owner[run] = place
        if owner is not None and moves:
            self._leaving[run] = owner
        self._at[place] = run

    def detach(self, run: Run, place: Place) -> None:
        """The run is no longer mapped there. If it was at home there, it goes back to the home that it has not left
        yet, or is free.

        Raises:
            InvariantError: it is not there.
        """
        if self._at.get(place) != run:
            raise InvariantError(f"{run} cannot be detached from {place}, which has {self._at.get(place)}")
        del self._at[place]
        if self._owner[run] == place:
            self._owner[run] = self._leaving.pop(run, None)
        elif self._leaving.get(run) == place:
            del self._leaving[run]

    def holdings(self) -> Holdings:
        pages = {ExpertSpan: 0, KvSpan: 0, StagingSpan: 0, None: 0}
        for run, owner in self._owner.items():
            pages[None if owner is None else type(owner.span)] += run.n_pages
        return Holdings(pages[ExpertSpan], pages[KvSpan], pages[StagingSpan], pages[None])

    def check(self) -> None:
        """Conservation, one owner for each run, no page of a span mapped twice. O(pages).

        Raises:
            InvariantError: names the run or place that is wrong.
        """
        if self._sealed is not None and self._sealed != self._owner.keys():
            raise InvariantError(f"{len(self._sealed)} runs were sealed, {len(self._owner)} are in the ledger")
        for run, owner in self._owner.items():
            if owner is not None and self._at.get(owner) != run:
                raise InvariantError(f"{run} belongs at {owner}, where {self._at.get(owner)} is mapped")
        covered: set[Place] = set()
        for place, run in self._at.items():
            if run not in self._owner or not self._may_be(run, place):
                raise InvariantError(f"{run} is mapped at {place} but belongs to {self._owner.get(run)}")
            pages = [Place(place.span, place.page + i) for i in range(run.n_pages)]
            if not covered.isdisjoint(pages):
                raise InvariantError(f"{run} at {place} overlaps another run")
            covered.update(pages)

    def _may_be(self, run: Run, place: Place) -> bool:
        return place in (self._owner[run], self._leaving.get(run)) or self.is_alias(run, place)


def _may_move(owner: Place | None, place: Place) -> bool:
    """Between experts and KV cache only."""
    return owner is not None and {type(owner.span), type(place.span)} == {ExpertSpan, KvSpan}
