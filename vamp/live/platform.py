"""Live platforms: data/live/*.yaml, what server to start on this machine and how small the paper's workloads become."""

from __future__ import annotations

import json
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from pydantic import Field

from vamp.config import Frozen
from vamp.engine.layout import expert_geometry
from vamp.memory.geometry import GIB, MIB, ExpertGeometry, KvGeometry
from vamp.paths import data_dir
from vamp.profiles import load_profile, profile_names

Count = Annotated[int, Field(ge=1)]
MODEL = "tiny model, random weights"


class Kv(Frozen):
    """One block: `page_bytes` in each of `n_tensors` KV tensors holds `block_tok` tokens."""

    block_tok: Count
    page_bytes: Count
    n_tensors: Count


class Inhouse(Frozen):
    growth_tok: Count
    output_tok: Count


class Replay(Frozen):
    """How a recording made for large GPUs is cut down.

    Attributes:
        sessions: so many of the stand-in's 48, or of a recorded trace's, at most.
        overrides: of the stand-in's assumptions, by name, before the division.
        tok_divisor: every length is divided by it.
        time_divisor: every start and think time is divided by it.
    """

    sessions: Annotated[int, Field(ge=2)]
    overrides: dict[str, float] = Field(default_factory=dict)
    tok_divisor: Count
    time_divisor: Annotated[float, Field(ge=1)]


class LivePlatform(Frozen):
    """A server and its limits. `base_blk` is the KV pool at the start, the null block included."""

    name: str
    title: str
    model: str
    hf_overrides: dict[str, int] = Field(default_factory=dict)
    expert_page_bytes: Annotated[int, Field(ge=4096)]
    kv_blocks: Kv = Field(alias="kv")
    base_blk: Annotated[int, Field(ge=2)]
    max_model_len: Count
    max_num_seqs: Count
    max_num_batched_tokens: Count
    inhouse: Inhouse
    replay: Replay

    @property
    def model_dir(self) -> Path:
        return data_dir() / "models" / self.model

    @cached_property
    def hf_config(self) -> dict[str, Any]:
        """The model's config.json with the overrides."""
        known: dict[str, Any] = json.loads((self.model_dir / "config.json").read_text(encoding="utf-8"))
        return known | self.hf_overrides

    @cached_property
    def experts(self) -> ExpertGeometry:
        return expert_geometry(SimpleNamespace(**self.hf_config), 1, page_bytes=self.expert_page_bytes)

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
        """How small it all is, for titles."""
        load, mib = self.replay, self.base_blk * self.kv.block_bytes / MIB
        return (
            f"experts {self.experts.weights_bytes / MIB:.0f} MiB, KV pool of {self.base_blk} blocks ({mib:.2f} MiB); "
            f"replay: {load.sessions} sessions, lengths / {load.tok_divisor}, times / {load.time_divisor:g}; "
            f"in-house: {self.inhouse.growth_tok} tokens a turn"
        )

    def max_blk(self, ratio_pct: float) -> int:
        """Blocks when all that the ratio allows is offloaded."""
        return self.kv.capacity_blk(self.base_blk, self.experts.max_groups(ratio_pct) * self.experts.group_bytes)


def live_platform_names() -> list[str]:
    return profile_names("live")


@cache
def load_live_platform(name: str) -> LivePlatform:
    """See `load_profile`."""
    return load_profile("live", name, LivePlatform, "live platform")
