"""One measurement in a process of its own: nothing imported before, nothing left in memory by another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from vamp.errors import RunError
from vamp.experiments import worker

A = TypeVar("A")
T = TypeVar("T")


def fresh(function: Callable[[A], T], argument: A) -> T:
    """`function(argument)` in a new process.

    Raises:
        RunError: the process died.
    """
    with ProcessPoolExecutor(1, get_context("spawn"), worker.start) as pool:
        try:
            return pool.submit(function, argument).result()
        except BrokenProcessPool:
            raise RunError("the benchmark's process died; perhaps memory ran out") from None
