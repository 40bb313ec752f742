"""The chooser: every plan can win, only feasible ones do, and an independent recomputation agrees."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.policy.independent import recompute
from vamp.config import CostModel
from vamp.memory.geometry import MIB, ExpertGeometry, KvGeometry, PoolPlan
from vamp.policy.log import decision_record
from vamp.policy.plan import Decision, Plan, Situation, choose

EXPERTS = ExpertGeometry(n_layers=48, n_shards=512, tensor_bytes=(2 * MIB, MIB))
KV = KvGeometry(page_bytes=557_056, n_tensors=12, block_tok=544)
POOL = PoolPlan(EXPERTS, KV, base_blk=1288, limit_groups=EXPERTS.max_groups(15))
COST = CostModel()
QUIET = Situation(
    gap_blk=17,
    must_grow_blk=0,
    ages_steps=(100,) * 17,
    r_hit=0.9,
    w_steps=64,
    groups=0,
    victims_partial_tok=(),
    t_queue_us=1000.0,
)


def decide(**changes: object) -> Decision:
    return choose(QUIET._replace(**changes), POOL, COST)  # type: ignore[arg-type]


def test_low_reuse_evicts() -> None:
    assert decide(r_hit=0.0).choice is Plan.EVICT


def test_high_reuse_offloads() -> None:
    assert decide(r_hit=0.9, w_steps=8).choice is Plan.OFFLOAD


def test_a_cheap_queue_preempts() -> None:
    assert decide(victims_partial_tok=(3,), t_queue_us=0.0).choice is Plan.PREEMPT


def test_offload_plus_evict_wins_when_the_last_increment_is_hardly_used() -> None:
    # 4 groups give 3.8 blocks. With a gap of 9, covering it alone takes 12 groups; 8 groups and
    # two long unused blocks are cheaper.
    d = decide(gap_blk=9, ages_steps=(10**7,) * 2 + (0,) * 7, r_hit=1.0, w_steps=30)
    assert d.choice is Plan.OFFLOAD_EVICT
    assert (d.groups_after, d.evict_blk) == (8, 2)


def test_at_the_limit_only_evict_and_preempt_remain() -> None:
    d = decide(groups=POOL.limit_groups, victims_partial_tok=(1,))
    assert {p for p, us in d.costs_us.items() if us is not None} == {Plan.EVICT, Plan.PREEMPT}


def test_nothing_feasible_is_no_choice() -> None:
    d = decide(groups=POOL.limit_groups, ages_steps=())
    assert d.choice is None
    assert d.groups_after == POOL.limit_groups


def test_a_pool_with_too_few_free_blocks_must_grow() -> None:
    d = decide(must_grow_blk=17, r_hit=0.0)
    assert d.choice is Plan.OFFLOAD
    assert d.costs_us[Plan.EVICT] is None


def test_the_last_partial_increment_is_allowed_where_it_gives_a_block() -> None:
    three = replace(POOL, kv=replace(KV, n_tensors=3))  # 2 groups are 6 pages: 2 for each of 3 tensors
    s = QUIET._replace(gap_blk=1, ages_steps=(), groups=POOL.limit_groups - 2)
    assert choose(s, three, COST).groups_after == POOL.limit_groups
    assert choose(s, POOL, COST).choice is None  # 6 pages do not reach 12 tensors


situations = st.builds(
    Situation,
    gap_blk=st.integers(1, 80),
    must_grow_blk=st.integers(0, 3),
    ages_steps=st.lists(st.integers(0, 10**5), max_size=80).map(tuple),
    r_hit=st.floats(0, 1),
    w_steps=st.integers(1, 64),
    groups=st.integers(0, POOL.limit_groups),
    victims_partial_tok=st.lists(st.integers(0, 543), max_size=4).map(tuple),
    t_queue_us=st.floats(0, 1e8),
).map(lambda s: s._replace(ages_steps=s.ages_steps[: s.gap_blk], must_grow_blk=min(s.must_grow_blk, s.gap_blk)))


def record(s: Situation, d: Decision) -> dict[str, object]:
    return decision_record(
        step=1,
        t_s=0.0,
        request_id="r",
        phase="running",
        situation=s,
        decision=d,
        pool_before_blk=POOL.capacity_blk(s.groups),
        pool_after_blk=POOL.capacity_blk(d.groups_after),
    )


@given(situations)
def test_the_choice_is_the_cheapest_feasible_plan_recomputed_independently(s: Situation) -> None:
    d = choose(s, POOL, COST)
    assert recompute(record(s, d), POOL, COST) == (d.choice.value if d.choice else None)


def test_the_recomputation_catches_a_wrong_choice() -> None:
    s = QUIET._replace(r_hit=0.0)
    wrong = record(s, choose(s, POOL, COST)._replace(choice=Plan.OFFLOAD))
    assert recompute(wrong, POOL, COST) != wrong["choice"]


@given(situations)
def test_the_choice_covers_the_gap(s: Situation) -> None:
    d = choose(s, POOL, COST)
    gained = POOL.capacity_blk(d.groups_after) - POOL.capacity_blk(s.groups)
    if d.choice in (Plan.OFFLOAD, Plan.OFFLOAD_EVICT, Plan.EVICT):
        assert gained + d.evict_blk >= s.gap_blk
        assert d.evict_blk <= len(s.ages_steps)
        assert gained >= min(s.must_grow_blk, s.gap_blk)
    assert s.groups <= d.groups_after <= POOL.limit_groups
