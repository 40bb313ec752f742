"""The adopted BlockPool: counts stay exact and blocks are conserved under any interleaving."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vamp.errors import InvariantError


def fresh_pool(n: int = 12):  # type: ignore[no-untyped-def]
    from vllm.v1.core.block_pool import BlockPool

    from vamp.engine.kv_pool import VampBlockPool

    return VampBlockPool.adopt(BlockPool(n, enable_caching=True, hash_block_size=16))


def cache(pool, block, name: int) -> None:  # type: ignore[no-untyped-def]
    from vllm.v1.core.kv_cache_utils import BlockHash, make_block_hash_with_group_id

    key = make_block_hash_with_group_id(BlockHash(name.to_bytes(8, "big")), 0)
    pool._insert_block_hash(key, block, num_tokens=16)


class PoolMachine(RuleBasedStateMachine):
    """Allocate, cache, free, hit, evict by id, grow, shrink, reset: in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = fresh_pool()
        self.held: list = []  # type: ignore[type-arg]
        self.names = 0

    @precondition(lambda self: self.pool.get_num_free_blocks() > 0)
    @rule(data=st.data())
    def allocate(self, data: st.DataObject) -> None:
        n = data.draw(st.integers(1, self.pool.get_num_free_blocks()))
        self.held += self.pool.get_new_blocks(n)

    @precondition(lambda self: any(b.block_hash is None for b in self.held))
    @rule(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from([b for b in self.held if b.block_hash is None]))
        self.names += 1
        cache(self.pool, block, self.names)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        n = data.draw(st.integers(1, len(self.held)))
        self.pool.step += 1
        gone, self.held = self.held[:n], self.held[n:]
        self.pool.free_blocks(reversed(gone))

    @rule(data=st.data())
    def hit(self, data: st.DataObject) -> None:
        cached = [b for b in self.pool.blocks if b.block_hash is not None]
        if cached:
            block = data.draw(st.sampled_from(cached))
            self.pool.touch([block])
            self.held.append(block)

    @rule(data=st.data())
    def drop_hash(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.pool.blocks[1:]))
        self.pool.evict_blocks({block.block_id})

    @rule(n=st.integers(1, 7))
    def grow(self, n: int) -> None:
        before = self.pool.get_num_free_blocks(), self.pool.uncached_free_blk
        self.pool.grow(n)
        assert (self.pool.get_num_free_blocks(), self.pool.uncached_free_blk) == (
            before[0] + n,
            before[1] + n,
        )

    @rule(data=st.data())
    def shrink(self, data: st.DataObject) -> None:
        before = self.pool.num_gpu_blocks
        n = data.draw(st.integers(0, max(0, before - 4)))
        in_use = any(block.ref_cnt for block in self.pool.blocks[before - n :])
        assert self.pool.shrink(n) is not in_use
        assert self.pool.num_gpu_blocks == (before if in_use else before - n)

    @rule()
    def reset(self) -> None:
        assert self.pool.reset_prefix_cache() is (not self.held)

    @invariant()
    def conserved(self) -> None:
        self.pool.check()
        in_use = {b.block_id for b in self.held}
        assert self.pool.get_num_free_blocks() + len(in_use) == self.pool.num_gpu_blocks - 1
        recount = [b for b in self.pool.free_block_queue.get_all_free_blocks() if b.block_hash is None]
        assert self.pool.uncached_free_blk == len(recount)

    @invariant()
    def ages_follow_eviction_order(self) -> None:
        cached = [b for b in self.pool.free_block_queue.get_all_free_blocks() if b.block_hash is not None]
        expected = tuple(self.pool.step - self.pool.last_used_step[b.block_id] for b in cached)
        assert self.pool.eviction_ages_steps(len(self.pool.blocks)) == expected


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_pool = PoolMachine.TestCase


def test_check_notices_a_wrong_count() -> None:
    pool = fresh_pool()
    pool.check()
    pool.cached_free_blk += 1
    with pytest.raises(InvariantError, match="cached_free=1"):
        pool.check()


def test_check_notices_a_lost_block() -> None:
    pool = fresh_pool()
    pool.free_block_queue.popleft()
    with pytest.raises(InvariantError):
        pool.check()


def test_grown_blocks_go_out_first_and_evict_nothing() -> None:
    pool = fresh_pool(4)
    blocks = pool.get_new_blocks(3)
    for i, b in enumerate(blocks):
        cache(pool, b, i)
    pool.free_blocks(reversed(blocks))
    assert pool.uncached_free_blk == 0
    pool.grow(2)
    assert [b.block_id for b in pool.get_new_blocks(2)] == [4, 5]
    assert pool.cached_free_blk == 3


def test_a_hit_block_is_no_eviction_candidate() -> None:
    pool = fresh_pool(4)
    blocks = pool.get_new_blocks(3)
    for i, b in enumerate(blocks):
        cache(pool, b, i)
    pool.free_blocks(reversed(blocks))
    assert len(pool.eviction_ages_steps(3)) == 3
    assert len(pool.eviction_ages_steps(3, spare={blocks[0].block_id})) == 2


def test_a_long_run_of_spared_blocks_is_not_walked_to_its_end() -> None:
    from vamp.engine.kv_pool import WALK_BLK

    pool = fresh_pool(WALK_BLK + 40)
    blocks = pool.get_new_blocks(WALK_BLK + 39)
    for i, b in enumerate(blocks):
        cache(pool, b, i)
    for b in blocks:
        pool.step += 1
        pool.free_blocks([b])
    spare = {b.block_id for b in blocks[: WALK_BLK + 30]}
    ages = pool.eviction_ages_steps(5, spare)
    exact = [pool.step - pool.last_used_step[b.block_id] for b in blocks[WALK_BLK + 30 : WALK_BLK + 35]]
    assert len(ages) == 5
    assert len(pool.eviction_ages_steps(50, spare)) == 9
    assert all(a >= e for a, e in zip(ages, exact, strict=True))


def test_adopting_a_pool_in_use_counts_what_is_cached() -> None:
    from vllm.v1.core.block_pool import BlockPool

    from vamp.engine.kv_pool import VampBlockPool

    pool = BlockPool(6, enable_caching=True, hash_block_size=16)
    blocks = pool.get_new_blocks(2)
    cache(pool, blocks[0], 1)
    pool.free_blocks(blocks)
    adopted = VampBlockPool.adopt(pool)
    assert adopted is pool
    assert adopted.cached_free_blk == 1
    adopted.check()
