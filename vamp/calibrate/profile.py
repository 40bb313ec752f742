"""The profile of a host: one JSON file, checked; every number with median, spread and count."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from vamp.config import Frozen, explain
from vamp.errors import ConfigError

VERSION = 1


class Spread(Frozen):
    """`median` of n observations, and what lies between p10 and p90 of them."""

    median: float
    p10: float
    p90: float
    n: int


def spread(values: Iterable[float]) -> Spread:
    """Raises ConfigError: nothing was observed."""
    x = sorted(values)
    if not x:
        raise ConfigError("nothing was observed; measure at least once")
    if len(x) == 1:
        return Spread(median=x[0], p10=x[0], p90=x[0], n=1)
    tenths = statistics.quantiles(x, n=10, method="inclusive")
    return Spread(median=statistics.median(x), p10=tenths[0], p90=tenths[-1], n=len(x))


class Copy(Frozen):
    """`way`: engine (the copy engine), kernel (the staging kernel) or memcpy (host to host, one thread)."""

    direction: Literal["h2d", "d2h", "h2h"]
    way: Literal["engine", "kernel", "memcpy"]
    nbytes: int
    gb_per_s: Spread


class Call(Frozen):
    """A call of the memory driver on one handle of `nbytes`."""

    call: str
    nbytes: int
    us: Spread


class Remap(Frozen):
    """Growing the pool by `groups` groups, `pages` pages in all, and giving them back; the device is idle."""

    groups: int
    pages: int
    grow_ms: Spread
    restore_ms: Spread


class Interference(Frozen):
    """A matrix product alone, and beside copies from the host."""

    way: Literal["engine", "kernel"]
    alone_ms: Spread
    beside_ms: Spread


class Step(Frozen):
    """Model steps that computed the same.

    Attributes:
        kind: decode; or mixed: one prompt's tokens beside decoding requests, timed as what it adds to a run of decode
            steps, plus one of those.
        prefill_tok, decode_seqs, context_tok, pairs: see `vamp.calibrate.fit.TimedStep`.
        groups: expert groups offloaded; staging: how they were staged ("" without).
        staged_bytes: copied in one step.
        n_steps: model steps that the tokens took; above 1 for prompts that were cut.
    """

    kind: Literal["decode", "mixed"]
    prefill_tok: int
    decode_seqs: int
    context_tok: int
    pairs: int
    groups: int = 0
    staging: Literal["", "routed", "whole_region"] = ""
    staged_bytes: float = 0.0
    n_steps: int = 1
    ms: Spread


class Model(Frozen):
    """What was served while steps were timed. `graph_tok`: steps with more tokens run outside CUDA graphs."""

    folder: str
    pool_blk: int
    max_num_seqs: int
    max_num_batched_tokens: int
    graph_tok: int
    load_format: str
    top_k: int
    n_experts: int


class Fitted(Frozen):
    """Step-time coefficients for `sim`. `residuals_pct`: of the rows that a fit used; `from_defaults`: not measured."""

    coefficients: dict[str, float]
    residuals_pct: dict[str, list[float]]
    from_defaults: dict[str, str]


class Profile(Frozen):
    """A calibration. What could not be measured is in `failures`, with the reason, and missing elsewhere."""

    version: Literal[1] = 1
    device: str
    device_gib: float
    environment: dict[str, Any]
    recorded: str
    quick: bool = False
    copies: tuple[Copy, ...] = ()
    calls: tuple[Call, ...] = ()
    remaps: tuple[Remap, ...] = ()
    interference: tuple[Interference, ...] = ()
    model: Model | None = None
    steps: tuple[Step, ...] = ()
    fitted: Fitted | None = None
    failures: dict[str, str] = Field(default_factory=dict)


def load(path: Path) -> Profile:
    """Raises ConfigError: the file cannot be read, is no profile, or has another version."""
    try:
        return Profile.model_validate_json(path.read_bytes())
    except OSError as err:
        raise ConfigError(
            f"calibration {path.name} cannot be read ({err.strerror}); run vamp calibrate --out"
        ) from None
    except ValidationError as err:
        raise ConfigError(f"{path.name} is no calibration of version {VERSION}: {explain(err, path.stem)}") from None


def write(profile: Profile, path: Path) -> None:
    """The whole file or none of it.

    Raises:
        ConfigError: the folder cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(profile.model_dump_json(indent=1) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as err:
        raise ConfigError(f"cannot write {path} ({err.strerror}); choose another --out") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
