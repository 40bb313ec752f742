import pytest

from vamp.errors import InvariantError
from vamp.memory.driver import Handle
from vamp.memory.ledger import Holdings, Ledger, Run
from vamp.memory.spans import ExpertSpan, KvSpan, Place, StagingSpan

EXPERT, OTHER = Place(ExpertSpan(1, 0), 4), Place(ExpertSpan(2, 0), 4)
KV, STAGING = Place(KvSpan(0), 9), Place(StagingSpan(0, 0), 0)
PAGE_RUN, STAGED = Run(Handle(1), 1), Run(Handle(2), 2)


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    for run, place in ((PAGE_RUN, EXPERT), (STAGED, STAGING)):
        made.add(run)
        made.attach(run, place)
    made.seal()
    made.check()
    return made


def test_a_run_moves_by_way_of_free(ledger: Ledger) -> None:
    assert ledger.holdings() == Holdings(expert=1, kv=0, staging=2, free=0)
    ledger.detach(PAGE_RUN, EXPERT)
    assert ledger.holdings() == Holdings(expert=0, kv=0, staging=2, free=1)
    ledger.check()
    ledger.attach(PAGE_RUN, KV)
    assert ledger.holdings() == Holdings(expert=0, kv=1, staging=2, free=0)
    assert ledger.runs[PAGE_RUN] == KV
    ledger.check()


def test_a_run_is_owned_by_its_new_home_before_it_leaves_the_old_one(ledger: Ledger) -> None:
    ledger.attach(PAGE_RUN, KV)
    assert ledger.holdings() == Holdings(expert=0, kv=1, staging=2, free=0)
    assert set(ledger.mapped) == {EXPERT, KV, STAGING}
    ledger.check()
    with pytest.raises(InvariantError):
        ledger.attach(PAGE_RUN, OTHER)  # one move at a time
    ledger.detach(PAGE_RUN, EXPERT)
    assert ledger.runs[PAGE_RUN] == KV and set(ledger.mapped) == {KV, STAGING}
    ledger.check()


def test_a_move_that_is_taken_back_leaves_the_old_owner(ledger: Ledger) -> None:
    ledger.attach(PAGE_RUN, KV)
    ledger.detach(PAGE_RUN, KV)
    assert ledger.runs[PAGE_RUN] == EXPERT and set(ledger.mapped) == {EXPERT, STAGING}
    ledger.check()


def test_an_alias_leaves_the_owner(ledger: Ledger) -> None:
    ledger.attach(STAGED, OTHER)
    assert ledger.is_alias(STAGED, OTHER) and not ledger.is_alias(STAGED, STAGING)
    assert ledger.runs[STAGED] == STAGING
    ledger.check()
    ledger.detach(STAGED, OTHER)
    assert ledger.runs[STAGED] == STAGING
    ledger.check()


def test_what_breaks_the_rules_is_refused(ledger: Ledger) -> None:
    before = dict(ledger.mapped)
    for refused in (
        lambda: ledger.attach(PAGE_RUN, OTHER),  # from experts a run goes to the KV cache only
        lambda: ledger.attach(PAGE_RUN, STAGING),
        lambda: ledger.attach(STAGED, EXPERT),  # taken
        lambda: ledger.attach(STAGED, KV),  # staging stands in for experts only
        lambda: ledger.detach(PAGE_RUN, KV),
        lambda: ledger.detach(STAGED, EXPERT),
        lambda: ledger.add(Run(Handle(3), 1)),  # sealed
    ):
        with pytest.raises(InvariantError):
            refused()
    assert ledger.mapped == before


def test_a_run_is_added_once() -> None:
    ledger = Ledger()
    ledger.add(PAGE_RUN)
    with pytest.raises(InvariantError, match="only move"):
        ledger.add(PAGE_RUN)


def test_the_views_are_read_only(ledger: Ledger) -> None:
    with pytest.raises(TypeError):
        ledger.mapped[KV] = PAGE_RUN  # type: ignore[index]
    with pytest.raises(TypeError):
        ledger.runs[PAGE_RUN] = None  # type: ignore[index]


# the check must be able to fail


def test_check_finds_a_lost_run(ledger: Ledger) -> None:
    del ledger._owner[PAGE_RUN], ledger._at[EXPERT]
    with pytest.raises(InvariantError, match="2 runs were sealed, 1"):
        ledger.check()


def test_check_finds_an_owner_without_its_page(ledger: Ledger) -> None:
    del ledger._at[EXPERT]
    with pytest.raises(InvariantError, match="belongs at"):
        ledger.check()


@pytest.mark.parametrize("run", [PAGE_RUN, Run(Handle(9), 1)])
def test_check_finds_a_second_place(ledger: Ledger, run: Run) -> None:
    ledger._at[KV] = run
    with pytest.raises(InvariantError, match="is mapped at"):
        ledger.check()


def test_check_finds_an_alias_of_a_free_run(ledger: Ledger) -> None:
    ledger.attach(STAGED, OTHER)
    ledger.detach(STAGED, STAGING)
    with pytest.raises(InvariantError, match="belongs to None"):
        ledger.check()


def test_check_finds_an_overlap(ledger: Ledger) -> None:
    ledger.attach(STAGED, Place(EXPERT.span, EXPERT.page - 1))
    with pytest.raises(InvariantError, match="overlaps"):
        ledger.check()
