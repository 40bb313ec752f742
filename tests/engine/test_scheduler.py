"""VAMP's scheduler against the stock one: nothing changes unless asked for, and every plan can be made to happen."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.policy.independent import recompute
from vamp.config import CostModel
from vamp.errors import ConfigError

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


def test_high_reuse_offloads_and_the_command_rides_on_that_step(build: Callable[..., Any]) -> None:
    scheduler, make, clock = build(base_blk=60, vamp={"ratio_pct": 15})
    chat, outputs = prompt(1, 9_000), []
    for turn in range(6):
        scheduler.add_request(make(f"a{turn}", chat, 4))
        scheduler.add_request(make(f"b{turn}", [t + 1 for t in chat], 4))
        outputs += run(scheduler, clock)
        chat = chat + prompt(50 + turn, 3_000)
    kinds = [d["choice"] for d in decisions(scheduler)]
    assert "offload" in kinds
    commands = [o.vamp_command for o in outputs if hasattr(o, "vamp_command")]
    assert scheduler.vamp.pool.num_gpu_blocks == scheduler.vamp.plan.capacity_blk(scheduler.vamp.groups) > 60
    assert commands[-1].capacity_blk == scheduler.vamp.pool.num_gpu_blocks
    grew = {d["step"] for d in decisions(scheduler) if d["groups_after"] > d["groups_before"]}
    assert len(commands) == len(grew)
    assert scheduler.kv_cache_config.num_blocks == scheduler.vamp.pool.num_gpu_blocks
    scheduler.vamp.pool.check()


def test_commands_are_numbered_without_gaps(build: Callable[..., Any]) -> None:
    scheduler, make, clock = build(base_blk=60, vamp={"ratio_pct": 15})
    outputs = []
    for turn in range(6):
        scheduler.add_request(make(f"a{turn}", prompt(1, 9_000 + 4_000 * turn), 4))
        outputs += run(scheduler, clock)
    seqs = [o.vamp_command.seq for o in outputs if hasattr(o, "vamp_command")]
    assert seqs == list(range(1, len(seqs) + 1))
    assert seqs


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
