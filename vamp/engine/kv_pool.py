"""vLLM's BlockPool, made to grow in place and to count its uncached free blocks exactly.

In vLLM a block whose contents are cached but unreferenced counts as free, so `get_num_free_blocks()` never shows the
shortage that VAMP acts on. `VampBlockPool` keeps that count, and the step at which each block was last in use. The pool
object itself is kept (vLLM's managers hold references to it): `adopt` changes its class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import BlockHashWithGroupId, KVCacheBlock

from vamp.errors import InvariantError

WALK_BLK = 64


class VampBlockPool(BlockPool):
    """Invariants, checked by `check`: the free queue holds exactly the unreferenced blocks, and `cached_free_blk` of
    them carry a hash."""

    cached_free_blk: int
    step: int
    last_used_step: list[int]

    @classmethod
    def adopt(cls, pool: BlockPool) -> VampBlockPool:
        """Turn vLLM's pool into this class, in place; blocks that are cached already are counted."""
        if not isinstance(pool, cls):
            pool.__class__ = cls
        assert isinstance(pool, cls)
        pool.step = 0
        pool.last_used_step = [0] * len(pool.blocks)
        pool.cached_free_blk = sum(b.ref_cnt == 0 and not b.is_null and b.block_hash is not None for b in pool.blocks)
        return pool

    @property
    def uncached_free_blk(self) -> int:
        """Free blocks whose use evicts nothing."""
        free: int = self.free_block_queue.num_free_blocks
        return free - self.cached_free_blk

    def grow(self, n_blk: int) -> None:
        """Append `n_blk` blocks with the next ids; they are handed out first, since they hold nothing."""
        first = self.num_gpu_blocks
        new = [KVCacheBlock(first + i) for i in range(n_blk)]
        self.blocks.extend(new)
        self.last_used_step.extend([self.step] * n_blk)
        self.num_gpu_blocks += n_blk
        self.free_block_queue.prepend_n(new)

    def shrink(self, n_blk: int) -> bool:
        """Drop the `n_blk` highest ids, evicting what they cache; False and no change while any is referenced.

        Only for engines that wait for each step: a step in flight may still write blocks that are free already.
        """
        tail = self.blocks[self.num_gpu_blocks - n_blk :] if n_blk else []
        if any(block.ref_cnt for block in tail):
            return False
        for block in tail:
            self._maybe_evict_cached_block(block)
            self.free_block_queue.remove(block)
        self.num_gpu_blocks -= n_blk
        del self.blocks[self.num_gpu_blocks :], self.last_used_step[self.num_gpu_blocks :]
        return True

    def eviction_ages_steps(self, n_blk: int, spare: Collection[int] = ()) -> tuple[int, ...]:
        """Ages of the next `n_blk` cached blocks that eviction would take, oldest first; fewer if there are fewer.

        A session about to be hit can have hundreds of spared blocks at the head of the queue. After `WALK_BLK` blocks
        the walk stops, and what is still missing is taken to be as old as the last block seen (it is younger, if
        anything), so that a decision stays short.

        Args:
            spare: ids of cached free blocks that are about to be hit and so are no candidates.
        """
        n_blk = min(n_blk, self.cached_free_blk - len(spare))
        if n_blk <= 0:
            return ()
        queue, last_used, step = self.free_block_queue, self.last_used_step, self.step
        block, end = queue.fake_free_list_head.next_free_block, queue.fake_free_list_tail
        ages: list[int] = []
        for _ in range(self.uncached_free_blk + n_blk + WALK_BLK):
            if block is end:
                break
            if block._block_hash is not None and block.block_id not in spare:  # not the property: a third faster
                ages.append(step - last_used[block.block_id])
                if len(ages) == n_blk:
                    return tuple(ages)
            last, block = block, block.next_free_block
        return (*ages, *[step - last_used[last.block_id]] * (n_blk - len(ages)))

    # vLLM's own operations, with the count kept

    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        for block in blocks:
            if block.ref_cnt == 0 and not block.is_null and block.block_hash is not None:
                self.cached_free_blk -= 1
            super().touch((block,))

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        blocks = list(ordered_blocks)
        super().free_blocks(blocks)
        for block in {b.block_id: b for b in blocks}.values():  # a block listed twice is freed once
            if block.ref_cnt == 0 and not block.is_null:
                self.last_used_step[block.block_id] = self.step
                self.cached_free_blk += block.block_hash is not None

    def _remove_cached_block_hashes(self, block: KVCacheBlock) -> list[BlockHashWithGroupId]:
        was_cached = block.block_hash is not None
        removed: list[BlockHashWithGroupId] = super()._remove_cached_block_hashes(block)
        if was_cached and block.block_hash is None and block.ref_cnt == 0 and not block.is_null:
            self.cached_free_blk -= 1
        return removed

    def _insert_block_hash(
        self, block_hash_with_group_id: BlockHashWithGroupId, block: KVCacheBlock, num_tokens: int | None
    ) -> None:
        was_cached = block.block_hash is not None
        super()._insert_block_hash(block_hash_with_group_id, block, num_tokens)
        if not was_cached and block.block_hash is not None and block.ref_cnt == 0 and not block.is_null:
            self.cached_free_blk += 1

    def reset_prefix_cache(self) -> bool:
        done: bool = super().reset_prefix_cache()
        if done:
            self.cached_free_blk = 0
        return done

    def check(self) -> None:
        """Block conservation, O(pool): for tests and for a run's end.

        Raises:
            InvariantError: with the counts that disagree.
        """
        free = self.free_block_queue.get_all_free_blocks()
        unreferenced = [b for b in self.blocks if b.ref_cnt == 0 and not b.is_null]
        cached = sum(b.block_hash is not None for b in free)
        ids = {b.block_id for b in free}
        if not (
            len(free) == len(ids) == len(unreferenced) == self.free_block_queue.num_free_blocks
            and ids == {b.block_id for b in unreferenced}
            and cached == self.cached_free_blk
            and len(self.blocks) == self.num_gpu_blocks == len(self.last_used_step)
            and all(b.block_id == i for i, b in enumerate(self.blocks))
        ):
            raise InvariantError(
                f"block pool: {len(free)} queued ({len(ids)} distinct, {cached} cached), {len(unreferenced)} "
                f"unreferenced, counters free={self.free_block_queue.num_free_blocks} "
                f"cached_free={self.cached_free_blk}, {len(self.blocks)} of {self.num_gpu_blocks} blocks"
            )
