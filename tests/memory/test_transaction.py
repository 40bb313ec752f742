"""Undo after a failure at any call, and what is said when undoing fails as well."""

import pickle
from contextlib import ExitStack

import numpy as np
import pytest

from tests.memory.helpers import PAGE, SMALL, FailingDriver, kernel_mappings, ledger_mappings, readable
from vamp.errors import DriverError, FatalRemapError, InvariantError, RemapError
from vamp.memory.addresses import Addresses
from vamp.memory.driver import Guard
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.ledger import Ledger, Run
from vamp.memory.region import bytes_at
from vamp.memory.spans import ExpertSpan, KvSpan, Place, SpanLayout, StagingSpan
from vamp.memory.transaction import Step, Transaction

HOME, TAIL = Place(ExpertSpan(1, 0), 14), Place(KvSpan(2), 8)
STAGING, ALIAS = Place(StagingSpan(0, 1), 0), Place(ExpertSpan(1, 1), 2)


class Bench:
    """One page at home with the experts, one staging run; moving it is detach, alias, attach: five driver calls."""

    def __init__(self, driver: FailingDriver) -> None:
        self.driver, self.ledger = driver, Ledger()
        self.addresses = Addresses(SpanLayout(SMALL), driver, Guard.HOLE, ExitStack())
        self.transaction = Transaction(driver, self.ledger, self.addresses)
        self.page, self.staged = (Run(driver.create(n * PAGE), n) for n in (1, 3))
        for run in (self.page, self.staged):
            self.ledger.add(run)
        self.ledger.seal()
        self.transaction.run([Step(True, self.page, HOME), Step(True, self.staged, STAGING)])
        self.transaction.commit(lambda _: 1)
        self.view(HOME)[:] = 77
        self.at_start = dict(self.ledger.mapped)
        self.steps = [Step(False, self.page, HOME), Step(True, self.staged, ALIAS), Step(True, self.page, TAIL)]
        driver.arm()

    def view(self, place: Place) -> np.ndarray:
        return bytes_at(self.addresses.pages(place, 1))

    def is_as_at_start(self) -> bool:
        self.ledger.check()
        there = [readable(self.addresses.pages(p, 1).address) for p in (HOME, STAGING, ALIAS, TAIL)]
        return (
            self.ledger.mapped == self.at_start
            and not self.transaction.taken
            and there == [True, True, False, False]
            and bool(np.all(self.view(HOME) == 77))
        )


N_CALLS = 5


@pytest.fixture
def bench(failing: FailingDriver) -> Bench:
    return Bench(failing)


def test_steps_move_memory_and_commit_cleans_it(bench: Bench) -> None:
    bench.transaction.run(bench.steps)
    assert bench.driver.calls == N_CALLS
    assert np.all(bench.view(TAIL) == 77)
    bench.transaction.commit(lambda place: 3 if place == TAIL else 9)
    assert np.all(bench.view(TAIL) == 3)
    assert np.all(bench.view(ALIAS) == 1), "a staging buffer keeps what it holds"
    assert not bench.is_as_at_start()


def test_abort_puts_everything_back(bench: Bench) -> None:
    bench.transaction.run(bench.steps)
    bench.transaction.abort()
    assert bench.is_as_at_start()
    bench.transaction.run(bench.steps)  # and it can be done again


@pytest.mark.parametrize("k", range(1, N_CALLS + 1))
def test_a_failure_at_any_call_is_undone(bench: Bench, k: int) -> None:
    bench.driver.arm({k})
    with pytest.raises(RemapError, match=f"made to fail at call {k}"):
        bench.transaction.run(bench.steps)
    assert bench.is_as_at_start()
    bench.driver.arm()
    bench.transaction.run(bench.steps)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_other_exceptions_are_undone_and_passed_on(bench: Bench, error: type[BaseException]) -> None:
    bench.driver.error = error
    bench.driver.arm({4})
    with pytest.raises(error):
        bench.transaction.run(bench.steps)
    assert bench.is_as_at_start()


def undo_calls(bench: Bench, k: int) -> int:
    """Calls that undoing a failure at call k takes."""
    bench.driver.arm({k})
    with pytest.raises(RemapError):
        bench.transaction.run(bench.steps)
    return bench.driver.calls - k


@pytest.mark.parametrize("k", range(2, N_CALLS + 1))
def test_a_failing_undo_is_fatal_and_the_ledger_still_true(failing: FailingDriver, k: int) -> None:
    n_undo = undo_calls(Bench(failing), k)
    assert n_undo > 0
    for j in range(1, n_undo + 1):
        failing = FailingDriver(MemfdDriver(PAGE))
        bench = Bench(failing)
        failing.arm({k, k + j})
        with pytest.raises(FatalRemapError, match=f"made to fail at call {k + j}") as caught:
            bench.transaction.run(bench.steps)
        assert "stop this rank" in str(caught.value) and "free=" in str(caught.value)
        bench.ledger.check()
        assert ledger_mappings(bench.ledger, bench.addresses) == kernel_mappings(failing.inner)
        assert dict(bench.ledger.mapped) != bench.at_start or "protect" in str(caught.value)
        with pytest.raises(InvariantError, match="stop this rank"):
            bench.transaction.run([])


def test_free_runs_are_named_when_undoing_fails(bench: Bench) -> None:
    bench.driver.arm({2, 3})  # the alias cannot be made; then the page cannot go home
    with pytest.raises(FatalRemapError) as caught:
        bench.transaction.run(bench.steps)
    assert f"handles of free runs: [{bench.page.handle}]" in str(caught.value)
    assert "1 steps are not undone" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_pages_that_cannot_be_overwritten_are_fatal(bench: Bench) -> None:
    bench.transaction.run(bench.steps)
    bench.driver.arm({1})
    with pytest.raises(FatalRemapError, match="could not be overwritten: fill"):
        bench.transaction.commit(lambda _: 0)
    with pytest.raises(InvariantError):
        bench.transaction.run([])


def test_one_at_a_time(bench: Bench) -> None:
    bench.transaction.run(bench.steps)
    with pytest.raises(InvariantError, match="3 steps are open"):
        bench.transaction.run([])


def test_the_inverse_of_the_inverse_is_the_step(bench: Bench) -> None:
    for step in bench.steps:
        assert step.inverse() != step == step.inverse().inverse()


def test_the_errors_are_drivers_errors(bench: Bench) -> None:
    bench.driver.arm({1})
    with pytest.raises(RemapError) as caught:
        bench.transaction.run(bench.steps)
    assert isinstance(caught.value.__cause__, DriverError)
