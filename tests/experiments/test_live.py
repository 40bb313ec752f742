"""The backend `cpu` without a server: what it would start, what it makes of metrics, where it may be used."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measure.conftest import request, result
from vamp.errors import CapacityError, ConfigError
from vamp.experiments import fig9, table1, table2, table2_live, table4
from vamp.experiments.parameters import NOT_THE_PAPERS, find_platform, platform_for, provenance
from vamp.experiments.spec import RunSpec, WorkloadSpec, make_spec
from vamp.experiments.store import code_digest
from vamp.live.load import live_load
from vamp.live.needs import needs
from vamp.live.plan import check_fits, live_command, live_environment, live_trace
from vamp.live.platform import LivePlatform, live_platform_names, load_live_platform
from vamp.live.watch import Watch
from vamp.measure.summary import summarise
from vamp.memory.geometry import GIB
from vamp.sim.platforms import load_platform
from vamp.workloads import build_trace
from vamp.workloads.client import Scrape
from vamp.workloads.inhouse import inhouse
from vamp.workloads.shrink import shrunk

PLATFORM = load_live_platform("cpu_tiny_moe")


def spec(ratio_pct: float = 0.0, **fields: object) -> RunSpec:
    given = {"workload": {"kind": "inhouse", "concurrency": 4}, **fields}
    return make_spec(backend="cpu", platform=PLATFORM.name, ratio_pct=ratio_pct, **given)


def after(command: list[str], name: str) -> str:
    assert command.count(name) == 1
    return command[command.index(name) + 1]


def test_platform_has_the_proportions_of_the_paper() -> None:
    """Table II: 2.30x and 2.71x."""
    assert PLATFORM.max_blk(0) == PLATFORM.base_blk
    assert PLATFORM.max_blk(15) / PLATFORM.base_blk == pytest.approx(2.30, abs=0.05)
    assert PLATFORM.max_blk(20) / PLATFORM.base_blk == pytest.approx(2.71, abs=0.05)
    assert PLATFORM.kv.page_bytes == PLATFORM.kv.block_tok * 2 * 2 * 64 * 2  # key and value, 2 heads of 64, bf16
    assert PLATFORM.kv_pool_gib * GIB == PLATFORM.base_blk * PLATFORM.kv.block_bytes
    # One request must fit into the base pool, or the engine waits for ever.
    assert PLATFORM.max_model_len <= (PLATFORM.base_blk - 1) * PLATFORM.kv.block_tok


def test_unknown_live_platform_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="'cpu_huge'; known: cpu_tiny_moe"):
        load_live_platform("cpu_huge")


@pytest.mark.parametrize("ratio", [0.0, 15.0])
def test_command_says_what_the_spec_says(tmp_path, ratio) -> None:
    command = live_command(spec(ratio, seed=3), PLATFORM, 4711, tmp_path / "d.jsonl")
    assert after(command, "--port") == "4711" and after(command, "--seed") == "3"
    assert after(command, "--num-gpu-blocks-override") == str(PLATFORM.base_blk)
    assert json.loads(after(command, "--hf-overrides")) == PLATFORM.hf_overrides
    assert "--no-scheduler-reserve-full-isl" in command
    assert "--no-scheduler-reserve-full-isl" not in live_command(
        spec(ratio, reserve_full_isl=True), PLATFORM, 1, tmp_path
    )
    assert ("--additional-config" in command) is bool(ratio)
    if ratio:
        vamp = json.loads(after(command, "--additional-config"))["vamp"]
        assert (vamp["ratio_pct"], vamp["vmm_page_bytes"]) == (15, PLATFORM.expert_page_bytes)
        assert vamp["decision_log"] == str(tmp_path / "d.jsonl")


def test_the_server_does_not_inherit_a_simulating_workers_thread_limit(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0")
    env = live_environment(PLATFORM)
    assert "OMP_NUM_THREADS" not in env and "VLLM_LOGGING_LEVEL" not in env
    assert env["VLLM_CPU_OMP_THREADS_BIND"] == "0" and env["HF_HUB_OFFLINE"] == "1"


def test_workloads_fit_the_server_and_say_their_scale() -> None:
    replay = live_trace(spec(workload={"kind": "replay"}), PLATFORM)
    check_fits(replay, PLATFORM)
    assert len(replay.sessions) == PLATFORM.replay.sessions and replay.stand_in
    assert "12 sessions, lengths / 64, times / 200" in replay.label
    inhouse_trace = live_trace(spec(), PLATFORM)
    check_fits(inhouse_trace, PLATFORM)
    assert "120 tokens a turn" in inhouse_trace.label
    half = live_trace(spec(workload={"kind": "replay", "scale": 0.5}), PLATFORM)
    assert len(half.sessions) == PLATFORM.replay.sessions // 2
    with pytest.raises(CapacityError, match=f"context of {PLATFORM.max_model_len}"):
        check_fits(
            live_trace(spec(workload={"kind": "inhouse", "concurrency": 1, "growth_tok": 400}), PLATFORM), PLATFORM
        )


def test_agents_fit_the_server_and_end_after_the_shortened_time() -> None:
    load = live_load(spec(workload={"kind": "agents"}, max_virtual_s=54.0), PLATFORM)
    assert (load.at_once, load.run_s, load.n_turns) == (PLATFORM.replay.sessions, 54.0, None)
    assert len(load.talks) == 48 and "lengths / 64, times / 200" in load.label
    asked = load.talks[0].ask()
    assert asked is not None and len(asked.prompt) == asked.turn.prompt_tok
    assert max(asked.prompt) < PLATFORM.vocab_tok
    assert asked.turn.prompt_tok + asked.turn.output_tok <= PLATFORM.max_model_len
    with pytest.raises(CapacityError, match="any agent"):
        live_load(spec(workload={"kind": "agents", "overrides": {"history_tok": 200_000}}), PLATFORM)


def test_a_recording_goes_to_its_end() -> None:
    load = live_load(spec(workload={"kind": "replay"}), PLATFORM)
    assert (load.at_once, load.run_s) == (None, None)
    assert load.n_turns == live_trace(spec(workload={"kind": "replay"}), PLATFORM).n_turns


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 70), st.integers(2, 60), st.integers(0, 9))
def test_shrunk_sessions_keep_their_shape(divisor: int, growth_tok: int, seed: int) -> None:
    full = inhouse(2, growth_tok, 1, seed)
    small = shrunk(full, tok_divisor=divisor, time_divisor=2.0)
    for was, now in zip(full.sessions, small.sessions, strict=True):
        for n, (a, b) in enumerate(zip(was.turns, now.turns, strict=True)):
            assert b.prompt_tok == math.ceil(a.prompt_tok / divisor) == len(now.tokens.prompt(n))
            assert b.output_tok == math.ceil(a.output_tok / divisor) == len(now.tokens.output(n))
            if n:  # every prompt extends the one before it
                before = now.tokens.prompt(n - 1)
                assert np.array_equal(now.tokens.prompt(n)[: len(before)], before)
    firsts = [s.tokens.prompt(11) for s in small.sessions]
    assert not np.array_equal(*firsts)  # and sessions stay different


def scrape(running: int, usage: float, hits: int, preemptions: int, vamp: str = "") -> Scrape:
    return Scrape.parse(
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc {usage}\n"
        f"vllm:prefix_cache_queries_total {hits * 2}\nvllm:prefix_cache_hits_total {hits}\n"
        f"vllm:num_preemptions_total {preemptions}\nvllm:generation_tokens_total 7\n{vamp}"
    )


def test_metrics_become_a_timeline() -> None:
    watch = Watch("http://x", lambda: 0.0, 101)
    grown = 'vamp_kv_blocks{kind="base"} 101\nvamp_kv_blocks{kind="added"} 100\nvamp_offloaded_groups 20\n'
    watch.samples = [
        (0.0, scrape(1, 0.5, 10, 3)),
        (2.0, scrape(2, 0.25, 30, 5, grown)),
        (3.0, scrape(0, 0, 30, 5, grown)),
    ]
    line = watch.timeline()
    assert line["pool_blk"].tolist() == [101, 201, 201]
    assert line["free_blk"].tolist() == [50, 150, 200]
    assert line["hits_tok"].tolist() == [0, 20, 20] and line["queries_tok"].tolist() == [0, 40, 40]
    assert line["uncached_free_blk"].isna().all()
    assert watch.preemption_s() == [2.0, 2.0]
    assert watch.groups_mean() == pytest.approx(20 * 1 / 3)


def test_preemptions_of_a_server_are_counted_inside_the_window() -> None:
    run = result([request("a", 0, 0.0, 1.0, 1.0), request("a", 1, 3.0, 1.0, 1.0)], preemptions_by="server")
    run.preemption_s = [1.0, 2.0, 99.0]
    assert summarise(run, spec()).preemptions_per_1k == pytest.approx(1000.0)
    run.meta.clear()  # the negative control: the simulator's own count, which is 0 here
    assert summarise(run, spec()).preemptions_per_1k == 0


def test_a_live_backend_takes_its_own_platform() -> None:
    live = table4.Params.check(backend="cpu", platform="h100_pcie_tp2")
    assert live.platform == live_platform_names("cpu")[0] and NOT_THE_PAPERS in live.why_not
    assert "live CPU server, tiny model, random weights" in live.title("Table IV") and "lengths / 64" in live.title("x")
    assert "simulated" in table4.Params.check().title("Table IV")
    assert table4.Params.check().platform == "h100_pcie_tp2"
    assert fig9.Params.check(backend="cpu", platform="both").sweep(live.platform) == PLATFORM.sweep
    assert set(provenance((live.platform,))["provenance"]) == {"declared: the scale"}
    for params in (table4.Params, fig9.Params, table2.Params):
        with pytest.raises(ConfigError, match="is not for backend 'cpu'"):
            params.check(backend="cpu", platform="h200_nvl_tp4")
    with pytest.raises(ConfigError, match="is not for backend 'sim'"):
        table4.Params.check(platform=live.platform)
    with pytest.raises(ConfigError, match="does not run on backend 'cpu'"):
        table1.Params.check(backend="cpu")
    with pytest.raises(ConfigError, match="unknown platform 'h300'"):
        platform_for("cpu", "h300", "h100_pcie_tp2")


def test_a_live_number_is_compared_with_nothing() -> None:
    assert fig9.measured(fig9.Params.check(backend="cpu"), None) == []
    assert table4.measured(table4.Params.check(backend="cpu"), None) == []


def test_table2_has_the_servers_numbers_beside_the_plans() -> None:
    run = result([request("a", 0, 0.0, 1.0, 1.0)], n_groups_max=30)
    run.timeline = Watch("http://x", lambda: 0.0, 132).timeline().reindex([0]).assign(pool_blk=222.0)
    row = table2_live._row(PLATFORM, 15.0, run)
    assert (row["groups"], row["groups_plan"]) == (30, 57)
    assert (row["pool_blk"], row["pool_blk_plan"]) == (222, 300)
    assert table2_live.table(PLATFORM, table2_live.pd.DataFrame([row])).loc[0, "plan"] == 300


def test_each_engine_has_its_own_code() -> None:
    assert code_digest("cpu") != code_digest("sim")


GPU = load_live_platform("h200_tp2_rank")


@pytest.mark.parametrize("name", live_platform_names("cuda"))
def test_a_gpu_platform_is_the_machine_that_is_simulated(name: str) -> None:
    live, simulated = load_live_platform(name), load_platform(name)
    assert (live.kv, live.experts, live.base_blk) == (simulated.kv, simulated.experts, simulated.base_blk)
    assert live.max_num_seqs == simulated.max_num_seqs
    assert (live.inhouse.growth_tok, live.inhouse.output_tok) == (
        simulated.inhouse_growth_tok,
        simulated.inhouse_output_tok,
    )
    assert live.comparable is (live.checkpoint is not None) is (name != GPU.name)
    problems = {need.name: need.problem for need in needs(live)}
    assert problems["pool"] == "" and "devices" in problems
    assert find_platform(name, "cuda") is live and find_platform(name, "sim") is simulated is find_platform(name)


def test_a_rank_on_a_gpu_is_served_as_the_checks_serve_it(tmp_path) -> None:
    asked = make_spec(backend="cuda", platform=GPU.name, ratio_pct=15, workload={"kind": "replay"})
    command = live_command(asked, GPU, 1, tmp_path / "d.jsonl")
    assert after(command, "--worker-cls").endswith("VampCUDAWorker") and after(command, "--load-format") == "dummy"
    assert after(command, "--num-gpu-blocks-override") == "1288" and after(command, "--moe-backend") == "triton"
    assert after(command, "--gdn-prefill-backend") == "triton" and "--block-size" not in command
    assert "--enable-prefix-caching" in command and "--enforce-eager" not in command
    env = live_environment(GPU)
    assert env["VLLM_USE_V2_MODEL_RUNNER"] == "0" and env["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "TORCH_COMPILE_DISABLE" not in env or "TORCH_COMPILE_DISABLE" in os.environ
    replay = live_trace(asked, GPU)
    check_fits(replay, GPU)
    assert len(replay.sessions) == 48 and replay.n_turns == 48 * GPU.replay.limit_turns
    assert sum(s.max_tok for s in replay.sessions) > GPU.base_blk * GPU.kv.block_tok  # over the cliff
    assert sum(s.max_tok for s in replay.sessions) < GPU.max_blk(15) * GPU.kv.block_tok


def test_a_checkpoint_is_looked_for_and_may_be_a_folder(tmp_path, monkeypatch) -> None:
    host = load_live_platform("h100_pcie_tp2")
    monkeypatch.setenv("VAMP_CHECKPOINT", str(tmp_path))
    assert "VAMP_CHECKPOINT" in problem_of(host, "model")
    (tmp_path / "config.json").write_text(json.dumps(host.hf_config | {"num_experts": 64}))
    assert "has num_experts 64" in problem_of(host, "model")
    (tmp_path / "config.json").write_text(json.dumps(host.hf_config))
    assert problem_of(host, "model") == "" and host.served == str(tmp_path)
    asked = make_spec(backend="cuda", platform=host.name, workload={"kind": "replay"})
    command = live_command(asked, host, 1, tmp_path / "d.jsonl")
    assert after(command, "--model") == str(tmp_path) and after(command, "--tensor-parallel-size") == "2"
    assert "--load-format" not in command


def problem_of(platform: LivePlatform, name: str) -> str:
    return {need.name: need.problem for need in needs(platform)}[name]


def test_only_the_papers_hosts_with_its_model_are_compared() -> None:
    paper, rank = (table4.Params.check(backend="cuda", platform=n) for n in ("h100_pcie_tp2", GPU.name))
    assert paper.why_not == "" and NOT_THE_PAPERS in rank.why_not
    sweep = fig9.Params.check(backend="cuda", platform=GPU.name)
    assert table4.measured(rank, None) == [] == fig9.measured(sweep, None)
    assert "one H200, one TP2 rank's shape, random weights" in rank.title("Table IV")
    recorded = table4.Params.check(backend="recorded", repeats=2)
    assert (recorded.platform, recorded.repeats) == (GPU.name, 1) and NOT_THE_PAPERS in recorded.why_not


def test_sessions_can_be_limited() -> None:
    full, cut = (
        build_trace(WorkloadSpec(kind="replay", limit_turns=n), seed=0, growth_tok=1, output_tok=1) for n in (None, 6)
    )
    assert (full.n_turns, cut.n_turns) == (2103, 48 * 6) and "first 6 turns" in cut.label
    for was, now in zip(full.sessions, cut.sessions, strict=True):
        assert now.turns == was.turns[:6] and np.array_equal(now.tokens.prompt(5), was.tokens.prompt(5))
    load = WorkloadSpec(kind="inhouse", concurrency=2, limit_turns=40)
    assert build_trace(load, seed=0, growth_tok=9, output_tok=1).label == "in-house 12-turn, c = 2"  # cuts nothing
