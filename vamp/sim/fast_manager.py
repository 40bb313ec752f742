"""Skip what would change nothing: the simulator's shortcut through vLLM's KVCacheManager.

A decode step inside a block allocates nothing, frees nothing and caches nothing, yet the stock call visits every KV
group several times to find that out; over a replay that is two thirds of all time. What the call does depends on the
token counts only through the block boundaries passed, so it is made once per boundary and skipped until the next.
tests/sim/test_fast_manager.py replays with and without it and compares every record.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.request import Request, RequestStatus


class DecodeMemo:
    """Wraps `allocate_slots` and `cache_blocks` of one manager instance."""

    def __init__(self, manager: KVCacheManager, block_tok: int) -> None:
        self.manager, self.block_tok = manager, block_tok
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._allocate, self._cache = manager.allocate_slots, manager.cache_blocks

    def install(self) -> None:
        """Replace the methods on the instance. All KV groups must have one block size, as hybrid layouts do."""
        manager: Any = self.manager
        manager.allocate_slots, manager.cache_blocks = self.allocate_slots, self.cache_blocks

    def allocate_slots(self, request: Request, num_new_tokens: int, *args: Any, **kwargs: Any) -> KVCacheBlocks | None:
        if num_new_tokens != 1 or args or request.status != RequestStatus.RUNNING:
            self._seen.pop(request.request_id, None)
            return self._allocate(request, num_new_tokens, *args, **kwargs)
        n_tok, computed = self.block_tok, request.num_computed_tokens
        key = (
            -(-(computed - request.num_in_flight_tokens) // n_tok),  # blocks that fell out of use
            -(-(computed + 1) // n_tok),  # blocks needed
            min(computed + 1, request.num_tokens) // n_tok,  # blocks full
        )
        if self._seen.get(request.request_id) == key:
            return self.manager.empty_kv_cache_blocks
        blocks = self._allocate(request, num_new_tokens, **kwargs)
        if blocks is not None:
            self._seen[request.request_id] = key
        return blocks

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Stock code returns early per group when no further block is full; asked once here."""
        full = num_computed_tokens // self.block_tok
        for manager in self.manager.coordinator.single_type_managers:
            if manager.num_cached_block.get(request.request_id, 0) < full:
                self._cache(request, num_computed_tokens)
                return
