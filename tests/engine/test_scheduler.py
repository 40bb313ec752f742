"""VAMP's scheduler against the stock one: nothing changes unless asked for, and every plan can be made to happen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.memory.helpers import FailingDriver
from tests.policy.independent import recompute
from vamp.config import CostModel
from vamp.engine.metrics import SchedulerMetrics
from vamp.engine.ranks import ExecutorRanks
from vamp.errors import ConfigError, RemapError
from vamp.memory.drivers.memfd import MemfdDriver
from vamp.memory.remapper import Remapper
from vamp.policy.plan import Plan

BLOCK_TOK = 544


def prompt(seed: int, n_tok: int) -> list[int]:
    return [(seed * 7919 + i * 31) % 150_000 + 3 for i in range(n_tok)]


def step(scheduler: Any, clock: Any) -> Any:
    """One step with made-up sampled tokens; returns the scheduler's output."""
    from vllm.v1.outputs import ModelRunnerOutput

    out = scheduler.schedule()
    ids = list(out.num_scheduled_tokens)
    sampled = [[9] if not scheduler.requests[r].is_prefill_chunk else [] for r in ids]
    clock.advance_to(clock.now_s() + 0.05)
    scheduler.update_from_output(
        out,
        ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={r: i for i, r in enumerate(ids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        ),
    )
    return out


def run(scheduler: Any, clock: Any, limit: int = 400) -> list[Any]:
    outputs = []
    while scheduler.has_requests():
        outputs.append(step(scheduler, clock))
        assert len(outputs) < limit, "no end"
    return outputs


def decisions(scheduler: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = scheduler.vamp.log.records
    return records


@pytest.mark.parametrize("vamp", [None, {"ratio_pct": 0}])
def test_without_a_ratio_it_is_vllms_own_scheduler(build: Callable[..., Any], vamp: dict[str, Any] | None) -> None:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.sched.scheduler import Scheduler

    scheduler, _, _ = build(vamp=vamp)
    assert type(scheduler) is Scheduler
    assert type(scheduler.kv_cache_manager.block_pool) is BlockPool


def test_async_scheduling_gets_the_async_scheduler(build: Callable[..., Any]) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    scheduler, _, _ = build(vamp={"ratio_pct": 15}, async_scheduling=True)
    assert isinstance(scheduler, AsyncScheduler)
    assert not isinstance(build(vamp={"ratio_pct": 15})[0], AsyncScheduler)


def test_a_bad_key_is_refused_with_its_name(build: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"vamp\.ratio_pct.*50.*got 70"):
        build(vamp={"ratio_pct": 70})
    with pytest.raises(ConfigError, match=r"vamp\.ratoi"):
        build(vamp={"ratoi": 15})


def test_no_shortage_no_invocation(build: Callable[..., Any]) -> None:
    scheduler, make, clock = build(base_blk=200, vamp={"ratio_pct": 15})
    scheduler.add_request(make("a", prompt(1, 9_000), 20))
    run(scheduler, clock)
    assert scheduler.vamp.invocations == 0


def test_low_reuse_evicts(build: Callable[..., Any]) -> None:
    scheduler, make, clock = build(base_blk=40, vamp={"ratio_pct": 15})
    for i in range(4):  # nothing is ever asked for again, so r_hit stays 0 and eviction is free
        scheduler.add_request(make(f"r{i}", prompt(i, 12_000), 4))
        run(scheduler, clock)
    assert {d["choice"] for d in decisions(scheduler)} == {"evict"}
    assert scheduler.vamp.pool.num_gpu_blocks == 40
    scheduler.vamp.pool.check()


def busy(scheduler: Any, make: Any, clock: Any) -> None:
    """Two growing chats on a pool of 60 blocks: offloading pays."""
    chat = prompt(1, 9_000)
    for turn in range(6):
        scheduler.add_request(make(f"a{turn}", chat, 4))
        scheduler.add_request(make(f"b{turn}", [t + 1 for t in chat], 4))
        run(scheduler, clock)
        chat = chat + prompt(50 + turn, 3_000)


def test_high_reuse_offloads_and_the_pool_grows_at_once(build: Callable[..., Any]) -> None:
    scheduler, make, clock = build(base_blk=60, vamp={"ratio_pct": 15})
    busy(scheduler, make, clock)
    assert "offload" in {d["choice"] for d in decisions(scheduler)}
    assert scheduler.vamp.pool.num_gpu_blocks == scheduler.vamp.plan.capacity_blk(scheduler.vamp.groups) > 60
    assert scheduler.kv_cache_config.num_blocks == scheduler.vamp.pool.num_gpu_blocks
    scheduler.vamp.pool.check()


class RealRanks:
    """Ranks with real remappers on memfd pages. The rank that `broken` names cannot make its fifth driver call."""

    def __init__(self, plan: Any, n_ranks: int) -> None:
        self.drivers = [FailingDriver(MemfdDriver(plan.experts.page_bytes)) for _ in range(n_ranks)]
        self.remappers = [Remapper(plan, d, rank=i) for i, d in enumerate(self.drivers)]
        self.asked: list[tuple[int, int]] = []
        self.broken: int | None = None

    def collective_rpc(self, method: str, args: tuple[Any, ...]) -> list[Any]:
        """As vLLM's executor: the same call on every rank, all replies."""
        if method == "vamp_prepare":
            self.asked.append(args)
            for rank, driver in enumerate(self.drivers):
                driver.arm({5} if rank == self.broken else ())
            return [r.prepare(*args) for r in self.remappers]
        assert method == "vamp_finish"
        for r in self.remappers:
            r.finish(*args)
        return [r.n_groups for r in self.remappers]


@pytest.fixture
def ranked(build: Callable[..., Any]) -> Iterator[tuple[Any, Any, Any, RealRanks]]:
    scheduler, make, clock = build(base_blk=60, vamp={"ratio_pct": 15})
    plan = small_pages(scheduler.vamp.plan)
    scheduler.vamp.plan = plan
    ranks = RealRanks(plan, 2)
    scheduler.vamp._ranks = ExecutorRanks(ranks)
    scheduler.vamp._metrics = SchedulerMetrics()
    yield scheduler, make, clock, ranks
    for remapper in ranks.remappers:
        remapper.close()
    for driver in ranks.drivers:
        driver.inner.close()


def small_pages(plan: Any) -> Any:
    """The same counts of groups and blocks in a 512th of the bytes, so that two ranks fit into a test."""
    experts = replace(plan.experts, tensor_bytes=(4096, 2048), page_bytes=4096)
    kv = replace(plan.kv, page_bytes=1088, vmm_page_bytes=4096)
    return replace(plan, experts=experts, kv=kv)


def metric(scheduler: Any, name: str, **labels: str) -> float:
    registry = scheduler.vamp._metrics.registry
    return registry.get_sample_value(name, labels) or 0.0


def test_ranks_move_before_blocks_are_handed_out(ranked: Any) -> None:
    scheduler, make, clock, ranks = ranked
    busy(scheduler, make, clock)
    assert {r.n_groups for r in ranks.remappers} == {scheduler.vamp.groups} != {0}
    assert [seq for seq, _ in ranks.asked] == list(range(1, len(ranks.asked) + 1))
    assert metric(scheduler, "vamp_remaps_total", result="committed") == len(ranks.asked)
    assert metric(scheduler, "vamp_kv_blocks", kind="added") == scheduler.vamp.pool.num_gpu_blocks - 60
    for remapper in ranks.remappers:
        remapper.check()


def test_a_rank_that_cannot_map_makes_no_rank_commit_and_serving_goes_on(
    ranked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, make, clock, ranks = ranked
    ranks.broken = 1
    logging.getLogger("vllm").propagate = True
    with caplog.at_level(logging.WARNING, logger="vllm.vamp"):
        busy(scheduler, make, clock)
    assert {r.n_groups for r in ranks.remappers} == {0} and scheduler.vamp.groups == 0
    assert scheduler.vamp.pool.num_gpu_blocks == 60
    assert scheduler.vamp.counts[Plan.EVICT] > 0  # all requests finished, by eviction
    assert scheduler.vamp.failed_remaps == metric(scheduler, "vamp_remaps_total", result="failed") > 0
    assert "rank 1" in caplog.text and "serving goes on" in caplog.text
    scheduler.vamp.pool.check()
    n_asked = len(ranks.asked)
    assert n_asked < scheduler.vamp.invocations  # not at every gap: it waits before it tries again

    ranks.broken = None
    scheduler.vamp.pool.step += 1000
    busy(scheduler, make, clock)
    assert {r.n_groups for r in ranks.remappers} == {scheduler.vamp.groups} != {0}


def test_experts_that_cannot_come_back_leave_pool_and_ranks_as_they_were(ranked: Any) -> None:
    scheduler, make, clock, ranks = ranked
    busy(scheduler, make, clock)
    groups, blocks = scheduler.vamp.groups, scheduler.vamp.pool.num_gpu_blocks
    ranks.broken = 0
    with pytest.raises(RemapError, match="try later"):
        scheduler.vamp.restore(0)
    assert (scheduler.vamp.groups, scheduler.vamp.pool.num_gpu_blocks) == (groups, blocks)
    ranks.broken = None
    assert scheduler.vamp.restore(0)
    assert {r.n_groups for r in ranks.remappers} == {0} and scheduler.vamp.pool.num_gpu_blocks == 60
    scheduler.vamp.pool.check()


def test_a_cheap_queue_preempts_once_then_the_observed_delay_forbids_it(build: Callable[..., Any]) -> None:
    cost = CostModel(t_sched_us=0, t_queue_init_us=0, t_prefill_us=1000).model_dump()
    scheduler, make, clock = build(base_blk=52, vamp={"ratio_pct": 15, "cost": cost})
    scheduler.vamp.hits.observe(1000, 950)
    scheduler.add_request(make("old", prompt(1, 22 * BLOCK_TOK - 2), 40))
    step(scheduler, clock)
    step(scheduler, clock)
    # The newcomer's partial blocks are what preemption would give; it is alone in being preemptable.
    scheduler.add_request(make("new", prompt(2, 12 * BLOCK_TOK + 1), 40))
    run(scheduler, clock)
    kinds = [d["choice"] for d in decisions(scheduler)]
    assert kinds.count("preempt") == 1, kinds
    assert scheduler.vamp.queue_delay.us > 0
    scheduler.vamp.pool.check()


def test_a_state_of_this_very_step_is_no_shortage(build: Callable[..., Any]) -> None:
    """MambaManager answers pool + 1 blocks for it; the controller must not offload for that."""
    scheduler, make, clock = build(base_blk=200, vamp={"ratio_pct": 15})
    same = prompt(1, 6_000)
    scheduler.add_request(make("a", same, 4))
    scheduler.add_request(make("b", same + prompt(2, 600), 4))
    run(scheduler, clock)
    assert scheduler.vamp.invocations == 0
    assert scheduler.vamp.groups == 0


def test_every_logged_choice_is_the_cheapest_recomputed(build: Callable[..., Any]) -> None:
    scheduler, make, clock = build(base_blk=60, vamp={"ratio_pct": 15})
    for turn in range(8):
        for who in range(3):
            scheduler.add_request(make(f"{who}.{turn}", prompt(who, 5_000 + 3_000 * turn), 30))
        run(scheduler, clock, limit=2000)
    records = decisions(scheduler)
    assert len(records) > 20
    for r in records:
        assert recompute(r, scheduler.vamp.plan, CostModel()) == r["choice"]


def test_a_full_prompt_larger_than_the_pool_is_admitted_by_growing(build: Callable[..., Any]) -> None:
    scheduler, make, clock = build(base_blk=30, vamp={"ratio_pct": 15}, reserve_full_isl=True)
    scheduler.add_request(make("big", prompt(1, 40 * BLOCK_TOK), 4))
    run(scheduler, clock)
    assert scheduler.vamp.pool.num_gpu_blocks > 40
    assert all(d["must_grow_blk"] > 0 for d in decisions(scheduler)[:1])


def test_the_plugin_refuses_another_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    from vamp.engine import plugin
    from vamp.errors import VersionError

    plugin.check_vllm_version()
    monkeypatch.setattr(plugin, "version", lambda name: "0.27.1")
    with pytest.raises(VersionError, match=r"0\.27\.1.*0\.26\.0"):
        plugin.check_vllm_version()


def test_a_dense_model_is_refused() -> None:
    from vamp.engine.layout import expert_geometry

    with pytest.raises(ConfigError, match="no routed experts"):
        expert_geometry(SimpleNamespace(model_type="llama", num_hidden_layers=2), 1)
    with pytest.raises(ConfigError, match="does not divide"):
        expert_geometry(
            SimpleNamespace(num_experts=4, moe_intermediate_size=100, hidden_size=64, num_hidden_layers=2), 3
        )


def test_fp8_experts_have_one_byte_an_element() -> None:
    from vamp.config import VampConfig
    from vamp.engine.layout import served_experts

    hf = SimpleNamespace(num_experts=512, moe_intermediate_size=256, hidden_size=2048, num_hidden_layers=48)
    model = SimpleNamespace(hf_text_config=hf, dtype=SimpleNamespace(itemsize=2))
    parallel = SimpleNamespace(tensor_parallel_size=1)

    def served(quant_config: object) -> tuple[int, ...]:
        vllm_config = SimpleNamespace(model_config=model, parallel_config=parallel, quant_config=quant_config)
        return served_experts(VampConfig(ratio_pct=15), vllm_config).tensor_bytes

    assert served(None) == (2 * 2**20, 2**20)
    assert served(SimpleNamespace(get_name=lambda: "fp8")) == (2**20, 2**19)
    assert served(SimpleNamespace(get_name=lambda: "awq")) == (2 * 2**20, 2**20)
