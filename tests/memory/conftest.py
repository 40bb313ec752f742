from collections.abc import Iterator

import pytest

from tests.memory.helpers import PAGE, FailingDriver
from vamp.memory.drivers.memfd import MemfdDriver


@pytest.fixture
def driver() -> Iterator[MemfdDriver]:
    d = MemfdDriver(PAGE)
    yield d
    d.close()


@pytest.fixture
def failing(driver: MemfdDriver) -> FailingDriver:
    return FailingDriver(driver)
