"""Shards, expert groups, increments, the residency boundary, and how many KV blocks reclaimed pages are worth.

Pure arithmetic on bytes (sections IV-C and V-A). An expert *shard* is what one tensor-parallel rank holds of one expert
of one layer. A *group* is the smallest number of consecutive shards whose tensors each fill whole VMM pages, so that
pages can change hands. Pages go to the tails of all KV tensors alike; a block needs its page in every tensor.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from math import ceil, lcm

from vamp.errors import GeometryError

MIB = 2**20
GIB = 2**30


def _positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise GeometryError(f"{name} is {value}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class ResidencyBoundary:
    """How many groups of each eligible layer are offloaded, highest expert indices first.

    Layers give up groups in turn, so two layers differ by one group at most.
    """

    n_groups: int
    eligible_layers: int

    def groups_of(self, layer: int) -> int:
        """Groups offloaded in the `layer`-th eligible layer."""
        base, extra = divmod(self.n_groups, self.eligible_layers)
        return base + (layer < extra)


@dataclass(frozen=True)
class ExpertGeometry:
    """Expert weights of one rank.

    Attributes:
        n_layers: MoE layers; the first `resident_layers` of them are never offloaded.
        n_shards: E, rank-local expert shards per layer.
        tensor_bytes: bytes of one shard in each weight tensor, e.g. (gate-and-up, down).
        page_bytes: VMM page.
    """

    n_layers: int
    n_shards: int
    tensor_bytes: tuple[int, ...]
    resident_layers: int = 1
    page_bytes: int = 2 * MIB

    def __post_init__(self) -> None:
        _positive(n_layers=self.n_layers, n_shards=self.n_shards, page_bytes=self.page_bytes)
        if not self.tensor_bytes:
            raise GeometryError("tensor_bytes is empty; name at least one expert tensor")
        _positive(**{f"tensor_bytes[{i}]": b for i, b in enumerate(self.tensor_bytes)})
        if not 0 <= self.resident_layers < self.n_layers:
            raise GeometryError(
                f"resident_layers is {self.resident_layers}; with {self.n_layers} MoE layers the limit is "
                f"{self.n_layers - 1}, or nothing could be offloaded"
            )

    @cached_property
    def shard_bytes(self) -> int:
        return sum(self.tensor_bytes)

    @cached_property
    def weights_bytes(self) -> int:
        """All experts of this rank (Table I: 72.0 GiB under TP2)."""
        return self.n_layers * self.n_shards * self.shard_bytes

    @cached_property
    def eligible_layers(self) -> int:
        return self.n_layers - self.resident_layers

    @cached_property
    def shards_per_group(self) -> int:
        """g: smallest count for which every tensor's part is a whole number of pages."""
        return lcm(*(lcm(b, self.page_bytes) // b for b in self.tensor_bytes))

    @cached_property
    def group_bytes(self) -> int:
        return self.shards_per_group * self.shard_bytes

    @cached_property
    def pages_per_group(self) -> int:
        return self.group_bytes // self.page_bytes

    def max_groups(self, ratio_pct: float, e_buffer_shards: int | None = None) -> int:
        """Most groups that may be offloaded, over all eligible layers.

        Each layer offloads at most floor(r % of E) shards, at most what a staging buffer holds, in whole groups.
        """
        shards = int(self.n_shards * ratio_pct / 100 + 1e-9)
        if e_buffer_shards is not None:
            shards = min(shards, e_buffer_shards)
        return shards // self.shards_per_group * self.eligible_layers

    def boundary(self, n_groups: int) -> ResidencyBoundary:
        return ResidencyBoundary(n_groups, self.eligible_layers)


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """KV tensors of one rank.

    Attributes:
        page_bytes: bytes of one block in one KV tensor (vLLM's page_size_bytes).
        n_tensors: KV tensors that share a block id (12 for Qwen3-Next).
        block_tok: tokens per block.
        vmm_page_bytes: VMM page; `page_bytes` need not be a multiple of it.
    """

    page_bytes: int
    n_tensors: int
    block_tok: int
    vmm_page_bytes: int = 2 * MIB

    def __post_init__(self) -> None:
        _positive(page_bytes=self.page_bytes, n_tensors=self.n_tensors, block_tok=self.block_tok)
        _positive(vmm_page_bytes=self.vmm_page_bytes)

    @property
    def block_bytes(self) -> int:
        """One block over all tensors."""
        return self.page_bytes * self.n_tensors

    def base_blk(self, pool_bytes: int) -> int:
        """Blocks in a pool of that size.

        Raises:
            GeometryError: not even the null block and one more fit.
        """
        blocks = pool_bytes // self.block_bytes
        if blocks < 2:
            raise GeometryError(
                f"a KV pool of {pool_bytes} B holds {blocks} blocks of {self.block_bytes} B; at least 2 are needed: "
                "raise the pool or lower the block size"
            )
        return blocks

    def capacity_blk(self, base_blk: int, reclaimed_bytes: int) -> int:
        """Blocks after that many bytes of whole VMM pages joined the tails.

        Pages are dealt to the tensors alike, so the tensor with the fewest decides (section V-A takes the same
        minimum over ranks).
        """
        pages_each = reclaimed_bytes // self.vmm_page_bytes // self.n_tensors
        base_pages = ceil(base_blk * self.page_bytes / self.vmm_page_bytes)
        return max(base_blk, (base_pages + pages_each) * self.vmm_page_bytes // self.page_bytes)


@dataclass(frozen=True)
class PoolPlan:
    """Both sides of the trade: which number of offloaded groups gives which pool.

    Attributes:
        base_blk: blocks at start-up, the null block included.
        limit_groups: groups that may be offloaded at most (ratio and staging buffer).
        increment_groups: groups move in such portions; a last partial one is allowed.
    """

    experts: ExpertGeometry
    kv: KvGeometry
    base_blk: int
    limit_groups: int
    increment_groups: int = 4

    @cached_property
    def capacities_blk(self) -> tuple[int, ...]:
        """`capacity_blk` of 0 to `limit_groups`, since every decision asks several times."""
        group_bytes = self.experts.group_bytes
        return tuple(self.kv.capacity_blk(self.base_blk, n * group_bytes) for n in range(self.limit_groups + 1))

    def capacity_blk(self, n_groups: int) -> int:
        """Pool size that the mapped pages hold with that many groups offloaded.

        For 0 it can exceed `base_blk` by the blocks that fit into the base's own last pages (3 for Qwen3-Next under
        TP2); they are handed out with the first growth.

        Raises:
            GeometryError: more than `limit_groups`, or fewer than none.
        """
        if not 0 <= n_groups <= self.limit_groups:
            raise GeometryError(f"{n_groups} groups to offload; the limit is 0 to {self.limit_groups}")
        return self.capacities_blk[n_groups]

    @property
    def max_blk(self) -> int:
        return self.capacity_blk(self.limit_groups)

    def groups_for_gap(self, gap_blk: int) -> int:
        """n_groups of Eq. 3: groups whose bytes cover that many blocks, before rounding to increments."""
        return -(-gap_blk * self.kv.block_bytes // self.experts.group_bytes)

    def grow_up_to(self, have_groups: int, gap_blk: int) -> int:
        """Smallest group count, in whole increments, that adds at least `gap_blk` blocks; the limit if none does."""
        capacities, step = self.capacities_blk, self.increment_groups
        first = bisect_left(capacities, capacities[have_groups] + gap_blk)
        return min(have_groups - (have_groups - first) // step * step, self.limit_groups)

    def grow_within(self, have_groups: int, gap_blk: int) -> int:
        """Largest group count, in whole increments, that adds at most `gap_blk` blocks (C_e^floor of Eq. 5)."""
        capacities, step = self.capacities_blk, self.increment_groups
        last = bisect_right(capacities, capacities[have_groups] + gap_blk) - 1
        return last if last == self.limit_groups else have_groups + (last - have_groups) // step * step


def common_capacity_blk(per_rank_blk: list[int]) -> int:
    """What every rank can add: the minimum over ranks (section V-A).

    Raises:
        GeometryError: no rank is given.
    """
    if not per_rank_blk:
        raise GeometryError("no rank reported its capacity; at least one is needed")
    return min(per_rank_blk)
