"""One torch.compile cache for plain vLLM and for every ratio: what the worker hands on has the same key."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.engine.arg_utils import EngineArgs

from vamp.engine.worker_mixin import VampWorkerMixin
from vamp.paths import data_dir


class Inner:
    """In the place of vLLM's worker: what it was given."""

    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config


class Worker(VampWorkerMixin, Inner):
    pass


def configured(ratio_pct: float | None, **fields: Any) -> Any:
    vamp = {} if ratio_pct is None else {"vamp": {"ratio_pct": ratio_pct, "vmm_page_bytes": 65536}}
    args = EngineArgs(
        model=str(data_dir() / "models" / "tiny-qwen3-next"),
        enforce_eager=True,
        dtype="bfloat16",
        mamba_ssm_cache_dtype="float32",
        load_format="dummy",
        max_model_len=2048,
        gdn_prefill_backend=fields.pop("gdn_prefill_backend", "triton"),
        additional_config=vamp | fields,
    )
    return args.create_engine_config()


@pytest.fixture(scope="module")
def plain() -> Any:
    return configured(None)


@pytest.mark.parametrize("ratio_pct", [0.0, 15.0, 20.0])
def test_no_ratio_changes_the_compile_caches_key(ratio_pct: float, plain: Any) -> None:
    given = configured(ratio_pct)
    worker = Worker(given)
    assert worker.vllm_config.compute_hash() == plain.compute_hash() == Worker(plain).vllm_config.compute_hash()
    assert given.compute_hash() != plain.compute_hash()  # the negative control: the key that vLLM would use
    assert given.additional_config["vamp"]["ratio_pct"] == ratio_pct  # the scheduler's, in the same process
    for part in ("cache_config", "compilation_config", "parallel_config", "scheduler_config"):
        assert getattr(worker.vllm_config, part) is getattr(given, part)  # shared: what one sets the other sees


def test_what_changes_the_graph_changes_the_key(plain: Any) -> None:
    other = Worker(configured(15.0, gdn_prefill_backend="flashinfer")).vllm_config
    assert other.additional_config == {"gdn_prefill_backend": "flashinfer"}
    assert other.compute_hash() != plain.compute_hash()
    assert Worker(configured(15.0, mine=1)).vllm_config.compute_hash() != plain.compute_hash()
