"""Pages change owner on a real device, back and forth: none is lost, and every byte is where it belongs."""

from __future__ import annotations

import random
from dataclasses import astuple
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vamp.calibrate.rig import Rig

CYCLES = 100
SLACK_BYTES = 2 * 2**20
"""What the driver may keep for itself over a run."""


def free_bytes() -> int:
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


def test_experts_move_in_unchanged(rig: Rig) -> None:
    experts = rig.remapper.layout.plan.experts
    everything = list(range(experts.n_shards))
    assert all(rig.shards_right(layer, everything) for layer in range(experts.n_layers))
    rig.weights(1, 0)[3, 5] += 1
    assert not rig.shards_right(1, everything)


def test_a_hundred_cycles_lose_nothing(rig: Rig) -> None:
    plan, rng = rig.remapper.layout.plan, random.Random(1)
    before, held = free_bytes(), sum(astuple(rig.remapper.holdings))
    marks = [rig.kv(tensor, plan.base_blk) for tensor in range(plan.kv.n_tensors)]
    for tensor, mark in enumerate(marks):
        mark.fill_(tensor + 1)
    for cycle in range(CYCLES):
        had, grown = rig.remapper.n_groups, rng.randint(rig.remapper.n_groups + 1, plan.limit_groups)
        rig.remap(grown)
        rig.remapper.check()
        for tensor in range(plan.kv.n_tensors):
            grown_kv = rig.kv(tensor, plan.capacity_blk(grown))
            new_pages = grown_kv[kv_pages(rig, tensor, had) * rig.driver.granularity :]
            assert not bool(new_pages.any()), f"cycle {cycle}: new KV pages of tensor {tensor} are not zero"
            grown_kv[plan.base_blk * plan.kv.page_bytes :] = 0xEE  # a request writes its blocks
        rig.remap(rng.randint(0, grown - 1) if cycle + 1 < CYCLES else 0)
        rig.remapper.check()
    assert sum(astuple(rig.remapper.holdings)) == held
    assert abs(free_bytes() - before) <= SLACK_BYTES
    assert all(bool((mark == tensor + 1).all()) for tensor, mark in enumerate(marks))
    everything = list(range(plan.experts.n_shards))
    assert all(rig.shards_right(layer, everything) for layer in range(plan.experts.n_layers))


def kv_pages(rig: Rig, tensor: int, n_groups: int) -> int:
    """Pages of a KV tensor with that many groups offloaded: they are dealt to the tensors in turn."""
    layout = rig.remapper.layout
    n_tensors, dealt = layout.plan.kv.n_tensors, n_groups * layout.plan.experts.pages_per_group
    return layout.kv_base_pages + (dealt + n_tensors - 1 - tensor) // n_tensors


def test_offloaded_experts_are_not_there_until_staged(rig: Rig) -> None:
    """The negative control of everything in test_staging.py."""
    plan = rig.remapper.layout.plan
    rig.remap(plan.limit_groups)
    shards = rig.remapper.offloaded(plan.experts.resident_layers)
    offloaded = list(range(shards.first, shards.last))
    assert offloaded and not rig.shards_right(shards.layer, offloaded)
    assert rig.shards_right(shards.layer, list(range(shards.first)))
    assert rig.remapper.offloaded(0).first == plan.experts.n_shards


@pytest.mark.parametrize("n_groups", [-1, 10_000])
def test_what_cannot_be_moved_changes_nothing(rig: Rig, n_groups: int) -> None:
    from vamp.errors import RemapError

    with pytest.raises(RemapError):
        rig.remap(n_groups)
    rig.remapper.check()
    assert rig.remapper.n_groups == 0
