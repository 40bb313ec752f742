import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory.helpers import PAGE, SMALL, kv_pages, small_plans
from vamp.errors import GeometryError
from vamp.memory.geometry import MIB, ExpertGeometry, KvGeometry, PoolPlan
from vamp.memory.spans import ExpertSpan, KvSpan, Place, ShardRange, SpanLayout, StagingSpan


def test_the_small_plan_by_hand() -> None:
    layout = SpanLayout(SMALL)
    assert (layout.depth, layout.expert_pages, layout.group_pages) == (2, (15, 8), (6, 3))
    assert (layout.staging_pages, layout.kv_base_pages, layout.kv_max_pages) == ((12, 6), 8, 8 + 14)
    assert (layout.tensor_start(0), layout.tensor_start(1)) == (0, 2048)
    second = layout.group(4)  # the second group of the second eligible layer
    assert second.pages[0] == (Place(ExpertSpan(2, 0), 3), Place(KvSpan(0), 8 + 36 // 4))
    assert second.aliases == (
        (Place(StagingSpan(1, 0), 0), Place(ExpertSpan(2, 0), 3)),
        (Place(StagingSpan(1, 1), 0), Place(ExpertSpan(2, 1), 2)),
    )


def test_qwen3_next_on_two_ranks() -> None:
    """VAMP-15 (Table II): 38 groups of two shards in each of 47 layers, 10.46 GiB."""
    experts = ExpertGeometry(n_layers=48, n_shards=512, tensor_bytes=(2 * MIB, MIB))
    layout = SpanLayout(PoolPlan(experts, KvGeometry(557_056, 12, 544), 1288, experts.max_groups(15)))
    assert (layout.depth, layout.staging_pages) == (38, (76, 38))
    assert layout.offloaded(5, 47 * 38) == ShardRange(5, 512 - 76, 512)
    assert layout.offloaded(0, 47 * 38) == ShardRange(0, 512, 512)
    assert sum(n for _, n in layout.runs()) == 72 * 512 + 12 * 343 + 2 * 114


@given(small_plans())
def test_every_page_changes_hands_once_and_all_tails_grow_alike(plan: PoolPlan) -> None:
    layout = SpanLayout(plan)
    groups = [layout.group(seq) for seq in range(plan.limit_groups)]
    pages = [pair for g in groups for pair in g.pages]
    assert len({expert for expert, _ in pages}) == len({kv for _, kv in pages}) == len(pages)
    assert len(pages) == plan.limit_groups * plan.experts.pages_per_group
    starts = dict(layout.runs())
    assert all(starts[expert] == 1 for expert, _ in pages)
    for n in range(plan.limit_groups + 1):
        lengths = [layout.kv_base_pages] * plan.kv.n_tensors
        for g in groups[:n]:
            for _, kv in g.pages:
                assert kv.page == lengths[kv.span.tensor]  # type: ignore[union-attr]
                lengths[kv.span.tensor] += 1  # type: ignore[union-attr]
        assert lengths == kv_pages(plan, n)
        assert max(lengths) - min(lengths) <= 1
        assert min(lengths) * PAGE // plan.kv.page_bytes == plan.capacity_blk(n)
    assert layout.kv_max_pages == max(kv_pages(plan, plan.limit_groups))


@given(small_plans())
def test_runs_fill_spans(plan: PoolPlan) -> None:
    layout = SpanLayout(plan)
    spans = dict(layout.spans())
    covered = [Place(p.span, p.page + i) for p, n in layout.runs() for i in range(n)]
    assert len(covered) == len(set(covered))
    for span, n in spans.items():
        mine = {p.page for p in covered if p.span == span}
        assert mine == set(range(layout.kv_base_pages if isinstance(span, KvSpan) else n))
    assert {p.span for p in covered} == spans.keys()


@given(small_plans())
def test_an_alias_keeps_the_distance_to_the_last_expert(plan: PoolPlan) -> None:
    layout = SpanLayout(plan)
    for seq in range(plan.limit_groups):
        for staged, expert in layout.group(seq).aliases:
            assert isinstance(staged.span, StagingSpan) and isinstance(expert.span, ExpertSpan)
            t = expert.span.tensor
            assert staged.span.tensor == t
            assert layout.staging_pages[t] - staged.page == layout.expert_pages[t] - expert.page
            assert staged.span.buffer == (expert.span.layer - plan.experts.resident_layers) % 2


@given(small_plans(), st.data())
def test_pages_of_a_group_hold_whole_shards(plan: PoolPlan, data: st.DataObject) -> None:
    """The bytes that leave are exactly the shards which the boundary calls offloaded."""
    layout = SpanLayout(plan)
    n = data.draw(st.integers(0, plan.limit_groups))
    left: dict[ExpertSpan, set[int]] = {}
    for seq in range(n):
        for place, _ in layout.group(seq).pages:
            left.setdefault(place.span, set()).add(place.page)  # type: ignore[arg-type]
    for layer in range(plan.experts.n_layers):
        shards = layout.offloaded(layer, n)
        for t, size in enumerate(plan.experts.tensor_bytes):
            first_byte = layout.tensor_start(t) + shards.first * size
            total = layout.expert_pages[t]
            if shards.first < shards.last:
                assert first_byte % PAGE == 0
            expected = set(range(first_byte // PAGE, total)) if shards.first < shards.last else set()
            assert left.get(ExpertSpan(layer, t), set()) == expected
            assert layout.tensor_start(t) + plan.experts.n_shards * size == total * PAGE


@given(small_plans(), st.data())
def test_restored_is_what_the_boundary_passed(plan: PoolPlan, data: st.DataObject) -> None:
    layout = SpanLayout(plan)
    n = data.draw(st.integers(0, plan.limit_groups))
    m = data.draw(st.integers(0, plan.limit_groups))
    for layer in range(plan.experts.n_layers):
        was, now = (set(range(r.first, r.last)) for r in (layout.offloaded(layer, n), layout.offloaded(layer, m)))
        back = {s for r in layout.restored(n, m) if r.layer == layer for s in range(r.first, r.last)}
        assert back == was - now


def test_two_page_sizes_are_refused() -> None:
    kv = KvGeometry(6000, 4, 16, 2 * PAGE)
    with pytest.raises(GeometryError, match="one size"):
        SpanLayout(PoolPlan(SMALL.experts, kv, 5, 0))


@pytest.mark.parametrize("limit", [-1, 7])
def test_a_limit_that_the_layers_cannot_give_is_refused(limit: int) -> None:
    SpanLayout(PoolPlan(SMALL.experts, SMALL.kv, 5, 6))
    with pytest.raises(GeometryError, match=f"limit_groups is {limit}; 3 layers of 10 shards have 6 groups of 4"):
        SpanLayout(PoolPlan(SMALL.experts, SMALL.kv, 5, limit))
