"""A rank's memory on a device, without vLLM: pages leave the experts right before a forward pass, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from vamp.memory.vote import Ballot, vote

if TYPE_CHECKING:
    import torch

    from vamp.calibrate.rig import Rig
    from vamp.engine.worker_memory_cuda import CudaRankMemory


@pytest.fixture
def memory(rig: Rig) -> Iterator[CudaRankMemory]:
    from vamp.engine.worker_memory_cuda import CudaRankMemory

    made = CudaRankMemory(rig.remapper, rig.copier, rig.driver, 0, mode="routed", top_k=2, graph_tok=512)
    yield made
    made.leave()


def grow(memory: CudaRankMemory, seq: int, n_groups: int) -> int:
    return memory.finish(vote([memory.prepare(seq, n_groups)], 1))


def forward(rig: Rig, memory: CudaRankMemory, n_tok: int = 30) -> bool:
    """A step as a worker runs it; whether every layer read the experts that its tokens chose."""
    import torch

    memory.begin_step(n_tok)
    memory.before_forward()
    right = []
    experts = rig.remapper.layout.plan.experts
    for layer in range(experts.n_layers):
        ids = torch.randint(0, experts.n_shards, (n_tok, 2), device="cuda", dtype=torch.int32)
        memory.before_experts(layer, ids)
        right.append(rig.shards_right(layer, sorted(set(ids.flatten().tolist()))))
        memory.after_experts(layer)
    return all(right)


def busy() -> torch.cuda.Event:
    """About a second of work on the stream; the event is behind it."""
    import torch

    torch.cuda._sleep(2_000_000_000)
    event = torch.cuda.Event()
    event.record()
    return event


def test_a_growth_does_not_wait_for_the_running_step_and_the_forward_does(rig: Rig, memory: CudaRankMemory) -> None:
    assert forward(rig, memory)
    running = busy()
    assert grow(memory, 1, 2) == 2
    assert not running.query()
    assert memory.remapper.held
    rig.remapper.check()
    memory.begin_step(30)
    assert not running.query()
    memory.before_forward()
    assert running.query() and not memory.remapper.held
    rig.remapper.check()
    assert forward(rig, memory)


def test_the_running_step_reads_its_experts_to_the_end(rig: Rig, memory: CudaRankMemory) -> None:
    """What a pass that was queued before the growth reads, it reads at the old address, before the page is zeroed."""
    layer = rig.remapper.layout.plan.experts.resident_layers
    busy()
    seen = rig.weights(layer, 0).clone()
    grow(memory, 1, rig.remapper.layout.plan.limit_groups)
    import torch

    assert torch.equal(seen, rig.expected(layer, 0))
    n_blk = rig.remapper.capacity_blk
    base = rig.remapper.layout.kv_base_pages * rig.driver.granularity
    assert not bool(rig.kv(0, n_blk)[base:].any())
    assert not torch.equal(rig.weights(layer, 0), seen)  # held: the zeroed pages are still mapped there, too
    assert forward(rig, memory)


def test_what_is_written_to_new_blocks_before_the_forward_stays(rig: Rig, memory: CudaRankMemory) -> None:
    grow(memory, 1, 2)
    tail = rig.kv(0, rig.remapper.capacity_blk)[rig.remapper.layout.kv_base_pages * rig.driver.granularity :]
    tail.fill_(7)  # as the copies of recurrent states do
    assert forward(rig, memory)
    assert tail.numel() and bool((tail == 7).all())


def test_steps_without_a_forward_and_growth_upon_growth_lose_nothing(rig: Rig, memory: CudaRankMemory) -> None:
    grow(memory, 1, 1)
    memory.begin_step(0)  # no tokens: no forward pass
    grow(memory, 2, 3)
    grow(memory, 3, 4)
    assert memory.remapper.held and memory.remapper.n_groups == 4
    rig.remapper.check()
    assert forward(rig, memory)
    assert not memory.remapper.held
    rig.remapper.check()


def test_giving_back_and_stats_complete_what_is_held(rig: Rig, memory: CudaRankMemory) -> None:
    grow(memory, 1, 4)
    assert grow(memory, 2, 1) == 1
    assert not memory.remapper.held
    rig.remapper.check()
    assert forward(rig, memory)
    grow(memory, 3, 3)
    assert memory.stats().n_groups == 3 and not memory.remapper.held
    assert forward(rig, memory)
    assert grow(memory, 4, 0) == 0
    assert forward(rig, memory)


def test_a_growth_that_some_rank_refuses_leaves_the_held_one(rig: Rig, memory: CudaRankMemory) -> None:
    grow(memory, 1, 2)
    mine = memory.prepare(2, 4)
    other = Ballot(1, mine.seq, mine.n_groups, mine.before_blk, mine.before_blk, "no memory")
    assert memory.finish(vote([mine, other], 2)) == 2
    rig.remapper.check()
    assert forward(rig, memory)
    rig.remapper.check()


def test_the_switch_follows_the_boundary(memory: CudaRankMemory) -> None:
    assert not memory.switch.enabled
    grow(memory, 1, 2)
    memory.leave()
    assert memory.switch.enabled
    grow(memory, 2, 0)
    assert not memory.switch.enabled


@pytest.mark.parametrize("real_rows_only", [True, False])
def test_rows_that_pad_a_graph_are_staged_only_if_they_must(
    rig: Rig, memory: CudaRankMemory, real_rows_only: bool
) -> None:
    """8 rows in a pass of 3 tokens; each row chose another offloaded expert."""
    import torch

    memory.real_rows_only = real_rows_only
    grow(memory, 1, rig.remapper.layout.plan.limit_groups)
    memory.begin_step(3)
    memory.before_forward()
    memory.routed.forget_counts()
    layer = rig.remapper.layout.plan.experts.resident_layers
    shards = rig.remapper.offloaded(layer)
    n_rows = min(8, shards.last - shards.first)
    ids = torch.arange(shards.first, shards.first + n_rows, device="cuda", dtype=torch.int32)[:, None]
    memory.before_experts(layer, ids)
    n_staged = min(3, n_rows) if real_rows_only else n_rows
    assert memory.routed.staged_shards()[layer] == n_staged
    assert rig.shards_right(layer, list(range(shards.first, shards.first + n_staged)))


def fresh_shards(rig: Rig, layer: int, tensor: int) -> bool:
    """Whether some offloaded shard reads as a buffer that was never filled: bytes of 0xFF, which is NaN."""
    shards = rig.remapper.offloaded(layer)
    words = rig.weights(layer, tensor)[shards.first : shards.last]
    return bool((words == -1).all(dim=1).any())


def test_what_nobody_staged_is_no_nan(rig: Rig, memory: CudaRankMemory) -> None:
    """A row that pads a graph reads it, and the next layer's router must be able to rank what comes out."""
    grow(memory, 1, rig.remapper.layout.plan.limit_groups)
    memory.leave()
    n_layers = rig.remapper.layout.plan.experts.n_layers
    assert not any(fresh_shards(rig, layer, tensor) for layer in range(1, n_layers) for tensor in range(2))
    first = rig.remapper.offloaded(1).first
    region = rig.remapper.addresses.staging(1, 0, first, first + 1)
    rig.driver.fill(region.address, region.nbytes, 0xFF)
    assert fresh_shards(rig, 1, 0)
