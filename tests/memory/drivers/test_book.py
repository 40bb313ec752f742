"""The rules against a model that keeps one entry per page."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import AddressError
from vamp.memory.driver import Guard, Handle
from vamp.memory.drivers.book import AddressBook, Range

G = 16
BASES, RANGE_PAGES = (160, 640), 12


@dataclass
class Model:
    """Pages by index; a page holds the start of the mapping that covers it."""

    sizes: dict[int, int]
    cover: dict[int, int] = field(default_factory=dict)

    def may_map(self, handle: int, address: int) -> bool:
        pages = range(address, address + self.sizes[handle] * G, G)
        inside = any(b <= address and address + self.sizes[handle] * G <= b + RANGE_PAGES * G for b in BASES)
        return address % G == 0 and inside and not any(p in self.cover for p in pages)

    def map(self, handle: int, address: int) -> None:
        self.cover |= dict.fromkeys(range(address, address + self.sizes[handle] * G, G), address)

    def may_unmap(self, address: int) -> bool:
        return self.cover.get(address) == address

    def unmap(self, address: int) -> None:
        self.cover = {p: start for p, start in self.cover.items() if start != address}

    def may_protect(self, address: int, n_pages: int) -> bool:
        pages = [address + i * G for i in range(n_pages)]
        whole = all(p in self.cover for p in pages) and self.cover.get(address) == address
        after = address + n_pages * G
        runs_on = after in self.cover and self.cover[after] != after
        return n_pages > 0 and whole and not runs_on


addresses = st.sampled_from([b + i * G for b in BASES for i in range(-1, RANGE_PAGES + 1)] + [BASES[0] + 3, 0])
actions = st.one_of(
    st.tuples(st.just("map"), st.integers(1, 4), addresses),
    st.tuples(st.just("unmap"), st.just(0), addresses),
    st.tuples(st.just("protect"), st.integers(0, 6), addresses),
)


def allowed(check: object, *arguments: object) -> bool:
    try:
        check(*arguments)  # type: ignore[operator]
    except AddressError:
        return False
    return True


@given(st.lists(actions, max_size=40))
def test_the_book_allows_what_the_model_allows(todo: list[tuple[str, int, int]]) -> None:
    book, model = AddressBook(G), Model({h: h for h in range(1, 5)})
    for base in BASES:
        book.add_range(Range(base, RANGE_PAGES * G, Guard.HOLE))
    for handle in model.sizes:
        book.add_handle(Handle(handle), handle * G)
    for what, n, address in todo:
        if what == "map" and allowed(book.may_map, n, address):
            assert model.may_map(n, address)
            book.add_mapping(Handle(n), address)
            model.map(n, address)
        elif what == "map":
            assert not model.may_map(n, address)
        elif what == "unmap" and allowed(book.may_unmap, address):
            assert model.may_unmap(address)
            book.drop_mapping(address)
            model.unmap(address)
        elif what == "unmap":
            assert not model.may_unmap(address)
        else:
            assert allowed(book.may_protect, address, n * G) == model.may_protect(address, n)
    for handle in model.sizes:
        used = any(book._ranges[b].mapped.get(s) == handle for b in BASES for s in book._ranges[b].starts)
        assert allowed(book.may_destroy, Handle(handle)) != used
    for base in BASES:
        empty = not any(base <= p < base + RANGE_PAGES * G for p in model.cover)
        assert allowed(book.may_release, base) == empty


def test_unknown_handles_are_named() -> None:
    with pytest.raises(AddressError, match="destroy: unknown handle: 7"):
        AddressBook(G).may_destroy(Handle(7))


def test_dropped_handles_and_ranges_are_unknown() -> None:
    book = AddressBook(G)
    book.add_handle(Handle(1), G)
    book.add_range(Range(BASES[0], G, Guard.HOLE))
    assert book.in_use_bytes == G
    book.drop_handle(Handle(1))
    book.drop_range(BASES[0])
    assert book.in_use_bytes == 0
    assert not allowed(book.may_release, BASES[0])
    assert not allowed(book.size, "map", Handle(1))
