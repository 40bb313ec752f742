import numpy as np
import pytest

from tests.memory.helpers import PAGE
from vamp.errors import AddressError
from vamp.memory.driver import Access
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.region import Region, bytes_at, tensor_at


@pytest.fixture
def mapped(driver: MemfdDriver) -> Region:
    base = driver.reserve(2 * PAGE)
    driver.map(driver.create(PAGE), base)
    driver.protect(base, PAGE, Access.READ_WRITE)
    return Region(base, 2 * PAGE)


def test_parts_stay_inside() -> None:
    whole = Region(1000, 100)
    assert whole.part(10, 90) == Region(1010, 90)
    assert whole.end == 1100
    for start, nbytes in [(10, 91), (-1, 5), (5, -1)]:
        with pytest.raises(AddressError, match="100 B"):
            whole.part(start, nbytes)


def test_views_share_the_memory(mapped: Region) -> None:
    import torch

    numpy_view = bytes_at(mapped.part(0, PAGE))
    torch_view = tensor_at(mapped.address, PAGE, torch.bfloat16, (4, PAGE // 8))
    assert torch_view.shape == (4, PAGE // 8)
    torch_view.fill_(1.0)
    assert numpy_view.tobytes() == b"\x80\x3f" * (PAGE // 2)
    numpy_view[:] = 0xFF
    assert torch_view.isnan().all()


def test_a_view_may_reach_over_unmapped_addresses(mapped: Region) -> None:
    import torch

    whole = tensor_at(mapped.address, 2 * PAGE, torch.uint8, (2, PAGE))
    whole[0] = 7
    assert np.all(bytes_at(mapped)[:PAGE] == 7)


def test_a_shape_that_does_not_fit_is_refused(mapped: Region) -> None:
    import torch

    with pytest.raises(AddressError, match=f"exactly {PAGE} B"):
        tensor_at(mapped.address, PAGE, torch.float32, (PAGE,))
    with pytest.raises(AddressError, match="more than 0"):
        tensor_at(mapped.address, 0, torch.float32, (0,))
