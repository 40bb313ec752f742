"""Which page lies where: every tensor has a span of addresses, and every page a place in one.

Pure arithmetic on a `PoolPlan`. Tensors of experts end at the end of their span, so that the groups counted from
the last expert fall on page borders whatever the number of experts:

    expert span   |fixed pages .........|group 2|group 1|group 0|     group 0 (last experts) goes first
    staging span                |group 2|group 1|group 0|             the same offsets from the end
    KV span       |base pages ....|tail: one page per tensor in turn ->

Offloading takes sequence numbers 0, 1, 2, ...: number s is group s // L of eligible layer s % L (L eligible layers),
as `ResidencyBoundary` counts them. The pages of all groups in that order are dealt to the KV tensors in turn: page k
goes to tensor k % n_tensors. So the boundary alone decides where every page is, whatever steps led there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from vamp.errors import GeometryError
from vamp.memory.geometry import PoolPlan

N_STAGING_BUFFERS = 2
"""Double buffering across consecutive layers (section V-B)."""


@dataclass(frozen=True, slots=True)
class ExpertSpan:
    """One weight tensor of one MoE layer, all shards of this rank."""

    layer: int
    tensor: int


@dataclass(frozen=True, slots=True)
class KvSpan:
    """One KV tensor at its virtual maximum."""

    tensor: int


@dataclass(frozen=True, slots=True)
class StagingSpan:
    """One weight tensor's part of one staging buffer."""

    buffer: int
    tensor: int


Span: TypeAlias = ExpertSpan | KvSpan | StagingSpan


@dataclass(frozen=True, slots=True)
class Place:
    """The page with that index in a span; a run of several pages is named by its first.

    The hash is kept: a remap looks thousands of places up while a GPU waits.
    """

    span: Span
    page: int
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.span, self.page)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class ShardRange:
    """Expert shards [first, last) of one MoE layer, resident layers counted."""

    layer: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Group:
    """What changes when one group is offloaded.

    Attributes:
        pages: (expert place, KV place) of each page that changes hands.
        aliases: (staging place, expert place) of each run that then backs the expert addresses.
    """

    pages: tuple[tuple[Place, Place], ...]
    aliases: tuple[tuple[Place, Place], ...]


class SpanLayout:
    """Attributes, all in pages of `page_bytes`, one entry per weight tensor where a tuple:
    depth: most groups that one layer may give up, which is what a staging buffer holds.
    expert_pages, group_pages, staging_pages: of one tensor of a layer, of one group, of a staging buffer.
    kv_base_pages, kv_max_pages: of one KV tensor, before anything is offloaded and at the limit.
    """

    def __init__(self, plan: PoolPlan) -> None:
        """Raises GeometryError: two page sizes, or a limit that the layers cannot give."""
        experts = plan.experts
        _check(plan)
        self.plan = plan
        self.page_bytes = page = experts.page_bytes
        self.depth = -(-plan.limit_groups // experts.eligible_layers)
        self.expert_pages = tuple(-(-experts.n_shards * b // page) for b in experts.tensor_bytes)
        self.group_pages = tuple(experts.shards_per_group * b // page for b in experts.tensor_bytes)
        self.staging_pages = tuple(self.depth * n for n in self.group_pages)
        self.kv_base_pages = -(-plan.base_blk * plan.kv.page_bytes // page)
        tail = plan.limit_groups * experts.pages_per_group
        self.kv_max_pages = self.kv_base_pages + -(-tail // plan.kv.n_tensors)

    def spans(self) -> Iterator[tuple[Span, int]]:
        """Every span with its pages."""
        for layer in range(self.plan.experts.n_layers):
            for tensor, n in enumerate(self.expert_pages):
                yield ExpertSpan(layer, tensor), n
        for tensor in range(self.plan.kv.n_tensors):
            yield KvSpan(tensor), self.kv_max_pages
        if self.depth:
            for buffer in range(N_STAGING_BUFFERS):
                for tensor, n in enumerate(self.staging_pages):
                    yield StagingSpan(buffer, tensor), n

    def runs(self) -> Iterator[tuple[Place, int]]:
        """Every page run to create, with the place where it starts out.

        A page that may change hands is a run of its own, since pages are dealt to the KV tensors one by one.
        What stays together is one run: fixed experts, the KV base, a group's part of a staging buffer.
        """
        for layer in range(self.plan.experts.n_layers):
            for tensor, n in enumerate(self.expert_pages):
                fixed = n - self.movable_groups(layer) * self.group_pages[tensor]
                if fixed:
                    yield Place(ExpertSpan(layer, tensor), 0), fixed
                for page in range(fixed, n):
                    yield Place(ExpertSpan(layer, tensor), page), 1
        for tensor in range(self.plan.kv.n_tensors):
            yield Place(KvSpan(tensor), 0), self.kv_base_pages
        for buffer in range(N_STAGING_BUFFERS):
            for tensor, n in enumerate(self.group_pages):
                for page in range(0, self.staging_pages[tensor], n):
                    yield Place(StagingSpan(buffer, tensor), page), n

    def movable_groups(self, layer: int) -> int:
        """Groups that a MoE layer gives up at the limit; 0 for the resident ones."""
        return self.groups_of(layer, self.plan.limit_groups)

    def groups_of(self, layer: int, n_groups: int) -> int:
        """Groups of a MoE layer that are offloaded when `n_groups` are in all."""
        eligible = layer - self.plan.experts.resident_layers
        return self.plan.experts.boundary(n_groups).groups_of(eligible) if eligible >= 0 else 0

    def offloaded(self, layer: int, n_groups: int) -> ShardRange:
        """Shards of a MoE layer that are offloaded when `n_groups` groups are; the first is its residency boundary."""
        experts = self.plan.experts
        n = self.groups_of(layer, n_groups) * experts.shards_per_group
        return ShardRange(layer, experts.n_shards - n, experts.n_shards)

    def restored(self, was: int, n_groups: int) -> tuple[ShardRange, ...]:
        """Shards that are offloaded with `was` groups and resident with `n_groups`, without empty ranges."""
        layers = range(self.plan.experts.n_layers)
        bounds = [(layer, self.offloaded(layer, was).first, self.offloaded(layer, n_groups).first) for layer in layers]
        return tuple(ShardRange(*bound) for bound in bounds if bound[1] < bound[2])

    def staged_shards(self, layer: int) -> int:
        """Shards of a MoE layer that its staging buffer holds: the last ones; 0 for a resident layer."""
        experts = self.plan.experts
        return self.depth * experts.shards_per_group if layer >= experts.resident_layers else 0

    def buffer_of(self, layer: int) -> int:
        """The staging buffer that an eligible layer reads: they alternate."""
        return (layer - self.plan.experts.resident_layers) % N_STAGING_BUFFERS

    def tensor_start(self, tensor: int) -> int:
        """Bytes before shard 0 in an expert span: 0 when the shards fill whole pages."""
        experts = self.plan.experts
        return self.expert_pages[tensor] * self.page_bytes - experts.n_shards * experts.tensor_bytes[tensor]

    def group(self, seq: int) -> Group:
        """The group with that sequence number."""
        depth, eligible = divmod(seq, self.plan.experts.eligible_layers)
        layer = eligible + self.plan.experts.resident_layers
        pages: list[tuple[Place, Place]] = []
        aliases: list[tuple[Place, Place]] = []
        for tensor, n in enumerate(self.group_pages):
            from_end = (depth + 1) * n
            first = Place(ExpertSpan(layer, tensor), self.expert_pages[tensor] - from_end)
            staged = StagingSpan(self.buffer_of(layer), tensor)
            aliases.append((Place(staged, self.staging_pages[tensor] - from_end), first))
            for page in range(n):
                kv = self._tail_place(seq * self.plan.experts.pages_per_group + len(pages))
                pages.append((Place(first.span, first.page + page), kv))
        return Group(tuple(pages), tuple(aliases))

    def _tail_place(self, k: int) -> Place:
        row, tensor = divmod(k, self.plan.kv.n_tensors)
        return Place(KvSpan(tensor), self.kv_base_pages + row)


def _check(plan: PoolPlan) -> None:
    experts = plan.experts
    if experts.page_bytes != plan.kv.vmm_page_bytes:
        raise GeometryError(
            f"expert pages have {experts.page_bytes} B and KV pages {plan.kv.vmm_page_bytes} B; pages change "
            "hands, so give both one size"
        )
    most = experts.n_shards // experts.shards_per_group * experts.eligible_layers
    if not 0 <= plan.limit_groups <= most:
        raise GeometryError(
            f"limit_groups is {plan.limit_groups}; {experts.eligible_layers} layers of {experts.n_shards} shards "
            f"have {most} groups of {experts.shards_per_group}: lower the ratio"
        )
