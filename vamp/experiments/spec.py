"""What a run is: a value whose canonical JSON, hashed with the code that matters, names it in the run store."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from vamp.config import RATIO_MAX_PCT, CostModel, Frozen, StagingMode, explain
from vamp.errors import ConfigError

Backend = Literal["sim", "cpu", "cuda", "recorded"]


class WorkloadSpec(Frozen):
    """Which sessions run.

    Attributes:
        kind: `replay` is the seeded stand-in for the paper's 2,103-turn recording; `inhouse` the 12-turn generator of
            section VI-C; `agents` are live ones, whose next request depends on the reply; `lmcache` is the seeded
            stand-in for the paper's second trace; `trace` reads `trace_path`.
        concurrency: sessions alive at once. inhouse: the paper's c. lmcache: its sessions. trace: None runs every
            session as recorded, a number keeps that many alive (a new one starts when one ends).
        copies: repeat the sessions with salted ids (trace only).
        sessions: so many of a trace's sessions, repeated with salted ids where it has fewer (trace only).
        growth_tok, output_tok: inhouse only: tokens appended per turn, and those of a reply; None takes the platform's
            declared value.
        first_tok, turns: inhouse only: length of the first prompt, and turns of a session; None takes the paper's.
        scale: 0 < scale <= 1 shrinks the number of sessions or turns; titles say so.
        limit_turns: trace: stop reading after that many turns. replay, inhouse: the first so many turns of each
            session; titles say so.
        trace_sha256: set by the planner from the file's content, so that an edited trace is another run.
    """

    kind: Literal["replay", "inhouse", "trace", "agents", "lmcache"]
    concurrency: Annotated[int, Field(ge=1, le=4096)] | None = None
    copies: Annotated[int, Field(ge=1, le=1000)] = 1
    sessions: Annotated[int, Field(ge=1, le=4096)] | None = None
    growth_tok: Annotated[int, Field(ge=1)] | None = None
    output_tok: Annotated[int, Field(ge=1)] | None = None
    first_tok: Annotated[int, Field(ge=1)] | None = None
    turns: Annotated[int, Field(ge=2, le=1000)] | None = None
    scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    limit_turns: Annotated[int, Field(ge=1)] | None = None
    trace_path: str | None = None
    trace_sha256: str | None = None
    overrides: dict[str, float] = Field(default_factory=dict)  # generator assumptions, changed by name

    @model_validator(mode="after")
    def _consistent(self) -> WorkloadSpec:
        if (self.kind == "trace") != (self.trace_path is not None):
            raise ValueError("kind 'trace' needs trace_path, and no other kind takes it")
        if self.kind in ("inhouse", "lmcache") and self.concurrency is None:
            raise ValueError(f"kind {self.kind!r} needs concurrency")
        return self


class RunSpec(Frozen):
    """One run of one system.

    Attributes:
        platform_sha256: of a platform that is a file of `vamp calibrate`; set by the planner, as `trace_sha256`.
        ratio_pct: 0 is plain vLLM, without any of vamp's code in the scheduler.
        reserve_full_isl: vLLM 0.26.0's admission gate; the paper's 0.15.1 did not have it (ARCHITECTURE 7b), so
            reproduction sets False for every system.
        async_scheduling: two steps in flight, as on GPUs.
        step_time: multiplies a named coefficient of the platform's step-time model (sensitivity runs).
    """

    backend: Backend = "sim"
    platform: str = "h100_pcie_tp2"
    platform_sha256: str | None = None
    ratio_pct: Annotated[float, Field(ge=0, le=RATIO_MAX_PCT)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0
    workload: WorkloadSpec
    reserve_full_isl: bool = False
    async_scheduling: bool = True
    max_num_batched_tokens: Annotated[int, Field(ge=1)] = 8192
    staging: StagingMode = "whole_region"
    cost: CostModel = CostModel()
    step_time: dict[str, float] = Field(default_factory=dict)
    max_virtual_s: Annotated[float, Field(gt=0)] = 48 * 3600.0

    @property
    def fixed_time(self) -> bool:
        """The run ends after `max_virtual_s`, done or not, as section VI-B's windows do; what is then under way is
        unfinished, not failed."""
        return self.workload.kind in ("agents", "lmcache") or self.workload.sessions is not None

    @property
    def system(self) -> str:
        """`vLLM`, or `VAMP-15`."""
        return "vLLM" if self.ratio_pct == 0 else f"VAMP-{self.ratio_pct:g}"


def make_spec(**fields: Any) -> RunSpec:
    """A checked spec.

    Raises:
        ConfigError: names each field that is wrong.
    """
    try:
        return RunSpec.model_validate(fields)
    except ValidationError as err:
        raise ConfigError(explain(err, "spec")) from None
