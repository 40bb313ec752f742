"""Experts come in layer by layer: while one layer moves, no page of a later one is there."""

from __future__ import annotations

import numpy as np
import pytest

from tests.memory.helpers import SMALL, Host
from vamp.errors import OutOfPagesError
from vamp.memory.addresses import Addresses
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.region import bytes_at
from vamp.memory.remapper import Remapper

LAYER_BYTES = sum(-(-SMALL.experts.n_shards * b // 4096) * 4096 for b in SMALL.experts.tensor_bytes)


def test_each_layer_moves_in_before_the_next_has_pages() -> None:
    driver, host = MemfdDriver(4096), Host(SMALL)
    in_use: list[int] = []

    def move_in(addresses: Addresses, layer: int) -> None:
        in_use.append(driver.in_use_bytes)
        for tensor in range(len(SMALL.experts.tensor_bytes)):
            bytes_at(addresses.expert(layer, tensor))[:] = host.tensors[layer, tensor]

    remapper = Remapper(SMALL, driver, move_in=move_in)
    assert in_use == [LAYER_BYTES * (layer + 1) for layer in range(SMALL.experts.n_layers)]
    remapper.check()
    assert all(host.as_kernels_read(remapper, layer) for layer in range(SMALL.experts.n_layers))
    bytes_at(remapper.addresses.expert(2, 0))[0] ^= np.uint8(1)
    assert not host.as_kernels_read(remapper, 2)
    remapper.close()
    driver.close()


def test_a_layer_that_cannot_move_in_leaves_nothing_behind() -> None:
    driver = MemfdDriver(4096)

    def move_in(_: Addresses, layer: int) -> None:
        if layer == 2:
            raise OutOfPagesError("no room")

    with pytest.raises(OutOfPagesError):
        Remapper(SMALL, driver, move_in=move_in)
    assert driver.in_use_bytes == 0
    driver.close()
