"""Platform profiles: data/platforms/*.yaml, checked, with the geometry that follows from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from pydantic import Field

from vamp.config import Frozen
from vamp.engine.layout import expert_geometry
from vamp.errors import ConfigError
from vamp.memory.geometry import GIB, ExpertGeometry, KvGeometry
from vamp.paths import data_dir
from vamp.profiles import load_profile, profile_names
from vamp.sim.step_time import StepTimeModel

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class StepTimeCoefficients(Frozen):
    """See `StepTimeModel`; and what moving VMM pages costs, each time and per page, and the spread of a step."""

    step_ms: NotNegative
    prefill_us_per_tok: NotNegative
    decode_ms_per_seq: NotNegative
    context_ns_per_tok: NotNegative
    tp_bus_gbps: Positive
    tp_shares_host_bus: bool
    h2d_gbps: Positive
    remap_us_per_page: NotNegative
    noise_sd: Annotated[float, Field(ge=0, le=0.5)]
    expert_read_ms: NotNegative = 0.0
    attention_ps_per_pair: NotNegative = 0.0
    routed_gbps: NotNegative = 0.0
    graph_tok: Annotated[int, Field(ge=0)] = 0
    launch_ms: NotNegative = 0.0
    remap_ms: NotNegative = 0.0


class Inhouse(Frozen):
    growth_tok: Annotated[int, Field(ge=1)]
    output_tok: Annotated[int, Field(ge=1)]


class PlatformFile(Frozen):
    name: str
    title: str
    model: str
    gpus: Annotated[int, Field(ge=1)]
    tp: Annotated[int, Field(ge=1)]
    hbm_gib: Positive
    kv_pool_gib: Positive
    max_num_seqs: Annotated[int, Field(ge=1)]
    step_time: StepTimeCoefficients
    inhouse: Inhouse
    provenance: dict[str, str]
    fitted_to: tuple[str, ...] = ()
    calibration: str | None = None
    """A profile of `vamp calibrate` in the same folder: what it measured wins over step_time."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A profile. `provenance` says of each coefficient whether it is fitted, measured or assumed, and from what;
    `fitted_to` names the paper's values that the fits used, so that nobody takes them for predictions."""

    name: str
    title: str
    gpus: int
    tp: int
    hbm_gib: float
    kv_pool_gib: float
    max_num_seqs: int
    model_dir: str
    inhouse_growth_tok: int
    inhouse_output_tok: int
    experts: ExpertGeometry
    kv: KvGeometry
    base_blk: int
    step_time: StepTimeCoefficients
    top_k: int
    hidden_size: int
    state_shapes: tuple[tuple[int, ...], ...]
    kv_heads: int
    head_dim: int
    attention_layers: int
    provenance: dict[str, str]
    fitted_to: tuple[str, ...]

    def step_model(self, scale: dict[str, float] | None = None) -> StepTimeModel:
        """The step-time model, with named coefficients multiplied (sensitivity runs).

        Raises:
            ConfigError: a name is no coefficient.
        """
        c = self.scaled(scale)
        return StepTimeModel(
            step_ms=c.step_ms,
            prefill_us_per_tok=c.prefill_us_per_tok,
            decode_ms_per_seq=c.decode_ms_per_seq,
            context_ns_per_tok=c.context_ns_per_tok,
            tp_bytes_per_tok=tp_bytes_per_tok(self.tp, self.experts.n_layers, self.hidden_size),
            tp_bus_gbps=c.tp_bus_gbps,
            tp_shares_host_bus=c.tp_shares_host_bus,
            h2d_gbps=c.h2d_gbps,
            experts=self.experts,
            top_k=self.top_k,
            expert_read_ms=c.expert_read_ms,
            attention_ps_per_pair=c.attention_ps_per_pair,
            routed_gbps=c.routed_gbps,
            graph_tok=c.graph_tok,
            launch_ms=c.launch_ms,
        )

    def scaled(self, scale: dict[str, float] | None) -> StepTimeCoefficients:
        known = {k: v for k, v in self.step_time.model_dump().items() if isinstance(v, float)}
        unknown = sorted(set(scale or {}) - set(known))
        if unknown:
            raise ConfigError(f"step_time has no coefficient {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return self.step_time.model_copy(update={k: known[k] * f for k, f in (scale or {}).items()})


def tp_bytes_per_tok(tp: int, n_layers: int, hidden_size: int, dtype_bytes: int = 2) -> int:
    """Bytes that one rank sends per token: two ring all-reduces a layer, each 2(tp-1)/tp of a hidden vector."""
    return int(2 * n_layers * hidden_size * dtype_bytes * 2 * (tp - 1) / tp)


def platform_names() -> list[str]:
    return profile_names("platforms")


@cache
def load_platform(name: str) -> Platform:
    """A platform under data/platforms, or a profile that `vamp calibrate` wrote (a name that ends with .json).

    Raises:
        ConfigError: see `load_profile` and `vamp.sim.calibrated`.
    """
    from vamp.sim.calibrated import calibrated_file, calibrated_platform

    if is_calibration(name):
        return calibrated_platform(Path(name))
    raw = load_profile("platforms", name, PlatformFile, "platform")
    return build_platform(calibrated_file(raw) if raw.calibration else raw)


def is_calibration(name: str) -> bool:
    """Whether a platform's name is a file of `vamp calibrate`."""
    return name.endswith(".json")


def build_platform(raw: PlatformFile) -> Platform:
    """Geometry of the model on these GPUs. A hybrid block is so long that an attention page holds a state."""
    model_dir = data_dir() / "models" / raw.model
    hf = SimpleNamespace(**json.loads((model_dir / "config.json").read_text(encoding="utf-8")))
    experts = expert_geometry(hf, raw.tp)
    kv_heads = max(1, hf.num_key_value_heads // raw.tp)
    shapes = gdn_state_shapes(hf, raw.tp)
    tok_bytes = 2 * kv_heads * hf.head_dim * 2
    block_tok = hybrid_block_tok(tok_bytes, shapes)
    attention_layers = hf.num_hidden_layers // hf.full_attention_interval
    kv = KvGeometry(block_tok * tok_bytes, attention_layers, block_tok)
    return Platform(
        name=raw.name,
        title=raw.title,
        gpus=raw.gpus,
        tp=raw.tp,
        hbm_gib=raw.hbm_gib,
        kv_pool_gib=raw.kv_pool_gib,
        max_num_seqs=raw.max_num_seqs,
        model_dir=str(model_dir),
        inhouse_growth_tok=raw.inhouse.growth_tok,
        inhouse_output_tok=raw.inhouse.output_tok,
        experts=experts,
        kv=kv,
        base_blk=kv.base_blk(int(raw.kv_pool_gib * GIB)),
        step_time=raw.step_time,
        top_k=hf.num_experts_per_tok,
        hidden_size=hf.hidden_size,
        state_shapes=shapes,
        kv_heads=kv_heads,
        head_dim=hf.head_dim,
        attention_layers=attention_layers,
        provenance=raw.provenance,
        fitted_to=raw.fitted_to,
    )


def gdn_state_shapes(hf: Any, tp: int) -> tuple[tuple[int, ...], ...]:
    """Convolution and recurrent state of one gated-delta-net layer on one rank, as vLLM 0.26.0 lays them out."""
    conv_dim = (
        2 * hf.linear_num_key_heads * hf.linear_key_head_dim + hf.linear_num_value_heads * hf.linear_value_head_dim
    )
    return (
        (hf.linear_conv_kernel_dim - 1, conv_dim // tp),
        (hf.linear_num_value_heads // tp, hf.linear_key_head_dim, hf.linear_value_head_dim),
    )


def hybrid_block_tok(tok_bytes: int, state_shapes: tuple[tuple[int, ...], ...], align_tok: int = 16) -> int:
    """Smallest multiple of `align_tok` tokens whose attention page holds one bf16 state (vLLM's hybrid alignment)."""
    state_bytes = 0
    for shape in state_shapes:
        n = 2
        for d in shape:
            n *= d
        state_bytes += n
    return -(-state_bytes // (tok_bytes * align_tok)) * align_tok
