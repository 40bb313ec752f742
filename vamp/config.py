"""The one configuration model. Defaults are the paper's (section V); what the paper leaves out is marked ASSUMPTION.

It travels to the engine as `additional_config={"vamp": {...}}` and comes from `--ratio` and friends on the command
line; either way pydantic checks it once, at the edge.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vamp.errors import ConfigError

RATIO_MAX_PCT = 50.0
StagingMode = Literal["whole_region", "routed", "auto"]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CostModel(Frozen):
    """Coefficients of equations 1 to 5. "Configured action-comparison weights rather than measured transfer times"."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    tau_steps: Annotated[float, Field(gt=0)] = 2000.0
    t_prefill_us: Annotated[float, Field(ge=0)] = 15.0
    t_sched_us: Annotated[float, Field(ge=0)] = 500.0
    t_queue_init_us: Annotated[float, Field(ge=0)] = 1000.0
    w_min_steps: Annotated[int, Field(ge=1)] = 1
    w_max_steps: Annotated[int, Field(ge=1)] = 64
    c_reload_us: Annotated[float, Field(ge=0)] = 630.0
    top_k: Annotated[int, Field(ge=1)] = 10
    t_overhead_us: Annotated[float, Field(ge=0)] = 500.0
    """ASSUMPTION. Eq. 2's t_overhead is not printed. Section V ties t_sched to "Eqs. 2, 4", so it is taken equal."""
    hit_window_requests: Annotated[int, Field(ge=1)] = 1000
    """ASSUMPTION. r_hit is observed over this many admitted requests, as in vLLM's own log line."""

    def c_eff_us(self, n_shards: int) -> float:
        """c_reload * k / E: 630 * 10 / 512 = 12.3 us (section V)."""
        return self.c_reload_us * self.top_k / n_shards


class VampConfig(Frozen):
    """What one server is told.

    Attributes:
        ratio_pct: VAMP-r, the cap on offloaded experts per MoE layer and rank, percent. 0 leaves plain vLLM.
        e_buffer_shards: shards of one layer that a staging buffer holds. ASSUMPTION (not printed): None sizes it to the
            ratio, so that it does not bind.
        increment_groups: groups by which the pool grows (section V-A).
        resident_layers: leading MoE layers kept fully resident (section V-B).
        staging: how offloaded experts reach the kernels; the paper has whole_region only.
        decision_log: JSONL file for one record per decision; None keeps them in memory only when asked.
    """

    ratio_pct: Annotated[float, Field(ge=0, le=RATIO_MAX_PCT)] = 15.0
    e_buffer_shards: Annotated[int, Field(ge=1)] | None = None
    increment_groups: Annotated[int, Field(ge=1)] = 4
    resident_layers: Annotated[int, Field(ge=0)] = 1
    vmm_page_bytes: Annotated[int, Field(ge=4096)] = 2 * 2**20
    staging: StagingMode = "whole_region"
    cost: CostModel = CostModel()
    decision_log: str | None = None


def parse_vamp_config(data: dict[str, Any]) -> VampConfig:
    """Check a plain dict.

    Raises:
        ConfigError: names every field that is wrong, its value and the limit.
    """
    try:
        return VampConfig.model_validate(data)
    except ValidationError as err:
        raise ConfigError(explain(err, "vamp")) from None


def explain(err: ValidationError, prefix: str) -> str:
    """One line out of pydantic's report: field, message, value."""
    parts = []
    for e in err.errors(include_url=False):
        where = ".".join(str(p) for p in (prefix, *e["loc"]))
        parts.append(f"{where}: {e['msg']} (got {e['input']!r})")
    return "; ".join(parts)
