"""Geometry against Tables I and II, and invariants for any shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import GeometryError
from vamp.memory.geometry import GIB, MIB, ExpertGeometry, KvGeometry, PoolPlan, common_capacity_blk
from vamp.sim.platforms import load_platform

TP2 = ExpertGeometry(n_layers=48, n_shards=512, tensor_bytes=(2 * MIB, MIB))
TP4 = ExpertGeometry(n_layers=48, n_shards=512, tensor_bytes=(MIB, MIB // 2))
KV2 = KvGeometry(page_bytes=557_056, n_tensors=12, block_tok=544)


@pytest.mark.parametrize(("experts", "shards", "gib"), [(TP2, 2, 72.0), (TP4, 4, 36.0)])
def test_table_1(experts: ExpertGeometry, shards: int, gib: float) -> None:
    assert experts.shards_per_group == shards
    assert experts.weights_bytes == gib * GIB
    assert (experts.group_bytes, experts.pages_per_group) == (6 * MIB, 3)


def test_the_model_config_gives_the_same_shards() -> None:
    assert load_platform("h100_pcie_tp2").experts == TP2
    assert load_platform("h200_nvl_tp4").experts == TP4


def test_hybrid_blocks_are_vllms() -> None:
    """544 and 272 tokens, pages of 557,056 and 278,528 B (measured with vLLM 0.26.0)."""
    two, four = load_platform("h100_pcie_tp2"), load_platform("h200_nvl_tp4")
    assert (two.kv.block_tok, two.kv.page_bytes, two.base_blk) == (544, 557_056, 1288)
    assert (four.kv.block_tok, four.kv.page_bytes, four.base_blk) == (272, 278_528, 27_923)


def test_vamp_15_reclaims_ten_and_a_half_gib() -> None:
    assert TP2.max_groups(15) * TP2.group_bytes / GIB == pytest.approx(10.46, abs=0.005)
    assert TP2.max_groups(14) < TP2.max_groups(15)


def test_the_staging_buffer_can_tighten_the_cap() -> None:
    assert TP2.max_groups(50, e_buffer_shards=76) == TP2.max_groups(15)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tensor_bytes": ()}, "tensor_bytes"),
        ({"tensor_bytes": (0,)}, "tensor_bytes"),
        ({"resident_layers": 48}, "resident_layers"),
        ({"n_shards": 0}, "n_shards"),
    ],
)
def test_bad_shapes_are_named(fields: dict[str, object], named: str) -> None:
    good: dict[str, object] = {"n_layers": 48, "n_shards": 512, "tensor_bytes": (MIB,)}
    ExpertGeometry(**good)  # type: ignore[arg-type]
    with pytest.raises(GeometryError, match=named):
        ExpertGeometry(**(good | fields))  # type: ignore[arg-type]


def test_a_pool_below_two_blocks_is_refused() -> None:
    with pytest.raises(GeometryError, match="at least 2"):
        KV2.base_blk(KV2.block_bytes)


plans = st.builds(
    lambda w13, w2, layers, shards, page, tensors, base, ratio, inc: PoolPlan(
        e := ExpertGeometry(layers + 1, shards, (w13 * 4096, w2 * 4096), 1, 4096 * 4),
        KvGeometry(page * 1000, tensors, 16, 4096 * 4),
        base,
        e.max_groups(ratio),
        inc,
    ),
    w13=st.integers(1, 12),
    w2=st.integers(1, 12),
    layers=st.integers(1, 6),
    shards=st.integers(1, 64),
    page=st.integers(1, 40),
    tensors=st.integers(1, 6),
    base=st.integers(2, 500),
    ratio=st.floats(0, 50),
    inc=st.integers(1, 5),
)


@given(plans)
def test_groups_are_whole_pages_of_every_tensor(p: PoolPlan) -> None:
    e = p.experts
    for tensor in e.tensor_bytes:
        assert e.shards_per_group * tensor % e.page_bytes == 0
    smaller = range(1, e.shards_per_group)
    assert not any(all(n * t % e.page_bytes == 0 for t in e.tensor_bytes) for n in smaller)


@given(plans, st.data())
def test_capacity_grows_with_groups_and_never_exceeds_the_bytes(p: PoolPlan, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, p.limit_groups))
    blocks = p.capacity_blk(n)
    assert p.base_blk <= blocks <= p.capacity_blk(p.limit_groups)
    gained_bytes = (blocks - p.base_blk) * p.kv.block_bytes
    slack = p.kv.n_tensors * p.kv.vmm_page_bytes  # the base's own last page may have had room
    assert gained_bytes <= n * p.experts.group_bytes + slack


@given(plans, st.data())
def test_growth_is_the_smallest_that_covers_and_the_largest_that_does_not(p: PoolPlan, data: st.DataObject) -> None:
    have = data.draw(st.integers(0, p.limit_groups))
    gap = data.draw(st.integers(1, 60))
    up, within = p.grow_up_to(have, gap), p.grow_within(have, gap)
    assert have <= within <= p.limit_groups
    assert have <= up <= p.limit_groups
    assert p.capacity_blk(within) - p.capacity_blk(have) <= gap
    covers = p.capacity_blk(up) - p.capacity_blk(have) >= gap
    assert covers or up == p.limit_groups
    if covers and up - p.increment_groups > have:
        assert p.capacity_blk(up - p.increment_groups) - p.capacity_blk(have) < gap


@given(plans, st.data())
def test_boundaries_differ_by_one_group_at_most(p: PoolPlan, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, p.limit_groups))
    per_layer = [p.experts.boundary(n).groups_of(i) for i in range(p.experts.eligible_layers)]
    assert sum(per_layer) == n
    assert max(per_layer) - min(per_layer) <= 1
    assert max(per_layer) * p.experts.shards_per_group <= p.experts.n_shards


def test_the_smallest_growth_where_rounding_favours_fewer_groups() -> None:
    e = ExpertGeometry(2, 11, (16384, 49152), 1, 16384)
    p = PoolPlan(e, KvGeometry(1000, 3, 16, 16384), 2, e.max_groups(37.0), 1)
    up = p.grow_up_to(2, 22)
    assert p.capacity_blk(up - 1) - p.capacity_blk(2) < 22 <= p.capacity_blk(up) - p.capacity_blk(2)


def test_a_group_count_out_of_range_is_refused() -> None:
    p = PoolPlan(TP2, KV2, 1288, TP2.max_groups(15))
    assert p.capacity_blk(0) == 1291  # 1,288 asked for; 343 pages a tensor hold three more
    for n in (-1, p.limit_groups + 1):
        with pytest.raises(GeometryError, match="the limit is 0 to 1786"):
            p.capacity_blk(n)


def test_ranks_agree_on_the_minimum() -> None:
    assert common_capacity_blk([100, 63]) == 63
    with pytest.raises(GeometryError, match="no rank"):
        common_capacity_blk([])
