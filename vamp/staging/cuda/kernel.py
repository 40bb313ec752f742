"""The kernel of routed staging: copies the experts that a step selected, and no others, from page-locked host memory.

It runs inside CUDA graphs: what is offloaded is a number in device memory, so that moving the boundary needs no new
capture. A small grid saturates the link (measured: 2 blocks of 512 threads do); every program takes its part of every
expert, so that no program waits for another. With nothing offloaded a program reads one number and ends.

A graph may be replayed with fewer tokens than it was captured for: its last rows are leftovers, whose experts nobody
needs. How many rows are real is a number in device memory, too.
"""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

PROGRAMS = 16
WARPS = 8
BLOCK_WORDS = 4096
"""One program's portion, 32 KiB: 8 loads of 16 bytes in flight per thread."""
IDS = 32
"""Expert numbers looked at together."""


@triton.jit
def _copy_shard(source, target, slot, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """This program's part of one shard of WORDS 8-byte words; source and target are addresses of slot 0."""
    lane = tl.arange(0, BLOCK)
    start = slot.to(tl.int64) * WORDS
    from_host = tl.multiple_of(source.to(tl.pointer_type(tl.int64)), 16)
    to_device = tl.multiple_of(target.to(tl.pointer_type(tl.int64)), 16)
    for block in range(tl.program_id(0), tl.cdiv(WORDS, BLOCK), tl.num_programs(0)):
        at = block * BLOCK + lane
        if WORDS % BLOCK == 0:
            words = tl.load(from_host + start + at, eviction_policy="evict_first")
            tl.store(to_device + start + at, words)
        else:
            words = tl.load(from_host + start + at, mask=at < WORDS, eviction_policy="evict_first")
            tl.store(to_device + start + at, words, mask=at < WORDS)


@triton.jit(do_not_specialize=["n_ids", "top_k"])
def stage_selected(
    ids,
    n_ids,
    top_k,
    n_tok,
    state,
    gate_source,
    gate_target,
    down_source,
    down_target,
    KEPT_FROM: tl.constexpr,
    N_EXPERTS: tl.constexpr,
    SLOTS: tl.constexpr,
    GATE_WORDS: tl.constexpr,
    DOWN_WORDS: tl.constexpr,
    IDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: PROGRAMS.

    Args:
        ids: expert numbers that the router chose, n_ids of them, int32 or int64; negative ones are skipped. A token's
            top_k numbers lie side by side.
        n_tok: int32, one number: the tokens that count, the first ones; what the others chose is not staged.
        state: int32, of this layer: [first expert to stage, experts staged so far, launches that looked for some].
            With N_EXPERTS as the first nothing is staged. Launches of one layer follow each other.
        gate_source ... down_target: addresses of expert KEPT_FROM, aligned to 16 bytes.
        SLOTS: a power of two, at least N_EXPERTS - KEPT_FROM.
        GATE_WORDS, DOWN_WORDS: 8-byte words of one shard.
        IDS, BLOCK: the constants above.
    """
    first = tl.load(state)
    if first < N_EXPERTS:
        n_real = tl.minimum(tl.load(n_tok).to(tl.int64) * top_k, n_ids).to(tl.int32)
        slots = tl.arange(0, SLOTS)
        selected = tl.zeros([SLOTS], tl.int32)
        for start in range(0, n_real, IDS):
            at = start + tl.arange(0, IDS)
            chosen = tl.load(ids + at, mask=at < n_real, other=-1)
            hit = chosen[:, None] == KEPT_FROM + slots[None, :]
            selected = tl.maximum(selected, tl.max(hit.to(tl.int32), axis=0))
        selected = tl.where(KEPT_FROM + slots >= first, selected, 0)
        if tl.program_id(0) == 0:
            tl.store(state + 1, tl.load(state + 1) + tl.sum(selected))
            tl.store(state + 2, tl.load(state + 2) + 1)
        slot = tl.min(tl.where(selected > 0, slots, SLOTS))
        while slot < SLOTS:
            _copy_shard(gate_source, gate_target, slot, GATE_WORDS, BLOCK)
            _copy_shard(down_source, down_target, slot, DOWN_WORDS, BLOCK)
            slot = tl.min(tl.where((selected > 0) & (slots > slot), slots, SLOTS))


NAME: str = stage_selected.__name__
"""What the driver calls the kernel."""
