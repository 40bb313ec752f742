"""The hook: vLLM's KVCacheManager, asking the controller before an allocation that would evict.

`allocate_slots` is the one place through which every KV block is handed out (vLLM 0.26.0,
v1/core/kv_cache_manager.py:283). The common cases, no block needed or enough uncached ones, cost a few comparisons.
"""

from __future__ import annotations

import time
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.request import Request, RequestStatus

from vamp.engine.controller import Controller
from vamp.policy.plan import Plan


class VampKVCacheManager(KVCacheManager):
    """Adopted in place, like the pool."""

    controller: Controller
    running: list[Request]

    @classmethod
    def adopt(cls, manager: KVCacheManager, controller: Controller, running: list[Request]) -> VampKVCacheManager:
        """`running` is the scheduler's own list, whose last element vLLM preempts first."""
        if not isinstance(manager, cls):
            manager.__class__ = cls
        assert isinstance(manager, cls)
        manager.controller, manager.running = controller, running
        return manager

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        *args: Any,
        **kwargs: Any,
    ) -> KVCacheBlocks | None:
        n_tok = num_new_tokens + num_lookahead_tokens
        if not (
            self._has_slots(request, num_new_computed_tokens + n_tok)
            or self._surely_enough(request, n_tok, kwargs)
            or self._cover_gap(
                request,
                num_new_tokens,
                num_new_computed_tokens,
                new_computed_blocks,
                num_lookahead_tokens,
                kwargs,
            )
        ):
            return None  # the stock loop preempts the last running request and asks again
        # Admission or not shows only afterwards; r_hit counts a request once, when it is admitted.
        waiting = request.status != RequestStatus.RUNNING
        blocks = super().allocate_slots(
            request,
            num_new_tokens,
            num_new_computed_tokens,
            new_computed_blocks,
            num_lookahead_tokens,
            *args,
            **kwargs,
        )
        if waiting and blocks is not None:
            self.controller.hits.observe(request.num_tokens, num_new_computed_tokens)
        return blocks

    def _has_slots(self, request: Request, n_tok: int) -> bool:
        """The blocks it holds already have room, as for most decode steps: nothing will be allocated."""
        request_id, n_tok = request.request_id, n_tok + request.num_computed_tokens
        for manager in self.coordinator.single_type_managers:
            if len(manager.req_to_blocks.get(request_id, ())) * manager.block_size < n_tok:
                return False
        return True

    def _surely_enough(self, request: Request, n_tok: int, kwargs: dict[str, Any]) -> bool:
        """Upper bound of the need: every group as if it held every token, one partial and one state block more."""
        if kwargs.get("full_sequence_must_fit"):
            n_tok = max(n_tok, request.num_tokens)
        block_tok = self.controller.plan.kv.block_tok
        bound = self.num_kv_cache_groups * (n_tok // block_tok + 3)
        return bool(self.controller.pool.uncached_free_blk >= bound)

    def _cover_gap(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int,
        new_computed_blocks: KVCacheBlocks | None,
        num_lookahead_tokens: int,
        kwargs: dict[str, Any],
    ) -> bool:
        """Measure the gap exactly and have it covered. False: preempt instead of allocating."""
        hit_lists = (new_computed_blocks or self.empty_kv_cache_blocks).blocks
        if self._must_wait_one_step(hit_lists):
            return True
        pool, coordinator = self.controller.pool, self.coordinator
        computed = request.num_computed_tokens + num_new_computed_tokens
        # As the stock code does before it counts: blocks that fell out of the attention window become free.
        coordinator.remove_skipped_blocks(
            request.request_id,
            max(0, computed - request.num_in_flight_tokens),
            num_prompt_tokens=request.num_prompt_tokens,
        )
        n_main = computed + num_new_tokens
        need = self._need_blk(
            request, n_main, min(n_main + num_lookahead_tokens, self.max_model_len), computed, hit_lists
        )
        must_grow = need - pool.get_num_free_blocks()
        if kwargs.get("full_sequence_must_fit"):
            full = min(request.num_tokens, self.max_model_len)
            whole = self._need_blk(request, full, full, computed, hit_lists, apply_admission_cap=True)
            must_grow = max(must_grow, whole - pool.get_num_free_blocks())
        spare = {b.block_id for hits in hit_lists for b in hits if b.ref_cnt == 0 and not b.is_null}
        gap = max(need - len(spare) - pool.uncached_free_blk, must_grow)
        if gap <= 0:
            return True
        started_ns = time.thread_time_ns()
        is_running = request.status == RequestStatus.RUNNING
        plan = self.controller.decide(
            gap_blk=gap,
            must_grow_blk=max(0, must_grow),
            request_id=request.request_id,
            phase="running" if is_running else "waiting",
            running=self.running,
            victims_partial_tok=self._victims(request, gap) if is_running else (),
            spare=spare,
            started_ns=started_ns,
        )
        return plan is not Plan.PREEMPT

    def _need_blk(
        self, request: Request, n_main: int, n_slots: int, computed: int, hit_lists: Any, **kwargs: bool
    ) -> int:
        """Blocks this takes out of the free queue, hits that lie there included."""
        need: int = self.coordinator.get_num_blocks_to_allocate(
            request_id=request.request_id,
            num_tokens=n_slots,
            new_computed_blocks=hit_lists,
            num_encoder_tokens=0,
            total_computed_tokens=computed,
            num_local_computed_tokens=computed,
            num_tokens_main_model=n_main,
            **kwargs,
        )
        return need

    def _must_wait_one_step(self, hit_lists: Any) -> bool:
        """A state computed in this very step cannot be hit yet; MambaManager then reports a need of pool + 1 blocks.

        That is no shortage: offloading for it would be for nothing.
        """
        for hits, manager in zip(hit_lists, self.coordinator.single_type_managers, strict=True):
            fresh = getattr(manager, "cached_blocks_this_step", None)
            if fresh and hits and hits[-1].block_hash in fresh:
                return True
        return False

    def _victims(self, request: Request, gap_blk: int) -> tuple[int, ...]:
        """Tokens in the last partial block of each request to preempt, last running first, until `gap_blk` uncached
        blocks come free; empty if preemption cannot give that many without reaching `request`."""
        partial_tok: list[int] = []
        got_blk = 0
        block_tok = self.controller.plan.kv.block_tok
        for victim in reversed(self.running):
            if victim is request:
                return ()
            got_blk += self._uncached_held_blk(victim)
            partial_tok.append(victim.num_computed_tokens % block_tok)
            if got_blk >= gap_blk:
                return tuple(partial_tok)
        return ()

    def _uncached_held_blk(self, victim: Request) -> int:
        """Blocks that preempting `victim` adds to the uncached free ones: its unhashed tail in each group."""
        n = 0
        for blocks in self.coordinator.get_blocks(victim.request_id):
            for block in reversed(blocks):
                if block.is_null or block.block_hash is not None:
                    break
                n += block.ref_cnt == 1
        return n
