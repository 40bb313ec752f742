"""Live platforms: data/live/*.yaml, what server to start, on a CPU or on GPUs, and how small the workloads become.

A name may also be that of a simulated platform: it is the same machine then, and its geometry is the same.
"""

from __future__ import annotations

import json
import os
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

from pydantic import Field

from vamp.config import Frozen
from vamp.engine.layout import expert_geometry
from vamp.memory.geometry import GIB, MIB, ExpertGeometry, KvGeometry
from vamp.paths import data_dir
from vamp.profiles import load_profile, profile_names

Count = Annotated[int, Field(ge=1)]
MODEL = "tiny model, random weights"
LIVE_BACKENDS = ("cpu", "cuda")
CHECKPOINT = "VAMP_CHECKPOINT"
"""Environment variable: a folder with the checkpoint, in place of the platform's hub id."""


class Kv(Frozen):
    """One block: `page_bytes` in each of `n_tensors` KV tensors holds `block_tok` tokens."""

    block_tok: Count
    page_bytes: Count
    n_tensors: Count


class Inhouse(Frozen):
    """`limit_turns`: of the 12, so many are run; None runs them all."""

    growth_tok: Count
    output_tok: Count
    limit_turns: Annotated[int, Field(ge=2)] | None = None


class Replay(Frozen):
    """How a recording made for large GPUs is cut down.

    Attributes:
        sessions: so many of the stand-in's 48, or of a recorded trace's, at most.
        overrides: of the stand-in's assumptions, by name, before the division.
        tok_divisor: every length is divided by it.
        time_divisor: every start and think time is divided by it.
        limit_turns: of every session the first so many turns; None runs them all.
    """

    sessions: Annotated[int, Field(ge=2)]
    overrides: dict[str, float] = Field(default_factory=dict)
    tok_divisor: Count
    time_divisor: Annotated[float, Field(ge=1)]
    limit_turns: Count | None = None


class LivePlatform(Frozen):
    """A server and its limits.

    Attributes:
        backend: cpu or cuda; the build of vLLM that it needs.
        label: what it is, for titles.
        model: a folder of data/models with its config.json.
        checkpoint: hub id of the real weights, which must be on this machine; None serves random ones. The environment
            variable `VAMP_CHECKPOINT` names a folder instead.
        tokenizer: a folder of data/models, where the model's own has none; prompts are token ids.
        tp: tensor-parallel ranks, one GPU each. `experts` and `kv` are those of one rank.
        base_blk: the KV pool at the start, the null block included.
        server_args: more options of vLLM's server, by name.
        environment: of the server.
        comparable: a host of the paper with its model: what it gives is compared with the paper.
        fill_sessions: in-house sessions whose contexts are more than the largest pool holds (Table II).
    """

    name: str
    backend: Literal["cpu", "cuda"] = "cpu"
    title: str
    label: str
    model: str
    checkpoint: str | None = None
    tokenizer: str | None = None
    hf_overrides: dict[str, int] = Field(default_factory=dict)
    tp: Count = 1
    expert_page_bytes: Annotated[int, Field(ge=4096)]
    kv_blocks: Kv = Field(alias="kv")
    base_blk: Annotated[int, Field(ge=2)]
    max_model_len: Count
    max_num_seqs: Count
    max_num_batched_tokens: Count
    server_args: dict[str, str | int | float] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    comparable: bool = False
    sweep: tuple[Count, ...]
    fill_sessions: Count
    inhouse: Inhouse
    replay: Replay

    @property
    def model_dir(self) -> Path:
        return data_dir() / "models" / self.model

    @property
    def served(self) -> str:
        """What the server loads: a folder, or a hub id. Random weights need a config.json only."""
        if self.checkpoint is None:
            return str(self.model_dir)
        return os.environ.get(CHECKPOINT) or self.checkpoint

    @cached_property
    def hf_config(self) -> dict[str, Any]:
        """The model's config.json with the overrides."""
        known: dict[str, Any] = json.loads((self.model_dir / "config.json").read_text(encoding="utf-8"))
        return known | self.hf_overrides

    @cached_property
    def experts(self) -> ExpertGeometry:
        return expert_geometry(SimpleNamespace(**self.hf_config), self.tp, page_bytes=self.expert_page_bytes)

    @cached_property
    def kv(self) -> KvGeometry:
        blocks = self.kv_blocks
        return KvGeometry(blocks.page_bytes, blocks.n_tensors, blocks.block_tok, self.expert_page_bytes)

    @property
    def vocab_tok(self) -> int:
        return int(self.hf_config["vocab_size"])

    @property
    def kv_pool_gib(self) -> float:
        return self.base_blk * self.kv.block_bytes / GIB

    @property
    def scale(self) -> str:
        """How small it all is, for titles; "" when the workloads are the paper's."""
        load, mib = self.replay, self.base_blk * self.kv.block_bytes / MIB
        changes = "".join(f", {name} {value:g}" for name, value in load.overrides.items())
        cut = f", {load.limit_turns} turns each" if load.limit_turns else ""
        if self.comparable and not (changes or cut):
            return ""
        first = f" x {self.inhouse.limit_turns} turns" if self.inhouse.limit_turns else ""
        return (
            f"experts {self.experts.weights_bytes / MIB:.0f} MiB, KV pool of {self.base_blk} blocks ({mib:.2f} MiB); "
            f"replay: {load.sessions} sessions{cut}, lengths / {load.tok_divisor}, "
            f"times / {load.time_divisor:g}{changes}; in-house: {self.inhouse.growth_tok} tokens a turn{first}"
        )

    def max_blk(self, ratio_pct: float) -> int:
        """Blocks when all that the ratio allows is offloaded."""
        return self.kv.capacity_blk(self.base_blk, self.experts.max_groups(ratio_pct) * self.experts.group_bytes)


def live_platform_names(backend: str | None = None) -> list[str]:
    """Of one backend, or all."""
    return [name for name in profile_names("live") if backend in (None, load_live_platform(name).backend)]


@cache
def load_live_platform(name: str) -> LivePlatform:
    """See `load_profile`."""
    return load_profile("live", name, LivePlatform, "live platform")
