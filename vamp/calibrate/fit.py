"""Step-time coefficients of `vamp.sim.step_time` out of measured steps: non-negative least squares, residuals kept.

Every row counts by its relative error, so that steps of 5 ms weigh as much as steps of 500 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls  # type: ignore[attr-defined]  # scipy has no stubs

from vamp.errors import ConfigError

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """Attributes:
    coefficients: as a platform's step_time names them.
    residuals_pct: (fitted - measured) / measured of every row, in percent, by the quantity fitted.
    """

    coefficients: dict[str, float]
    residuals_pct: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A measured step.

    Attributes:
        prefill_tok, decode_seqs: what it computed.
        context_tok: tokens attended to, summed over requests, those of the step included.
        pairs: see `StepLoad.attended_pairs`.
        ms: how long it took, from the step before to this one.
        staged_bytes: of experts copied by routed staging.
    """

    prefill_tok: int
    decode_seqs: int
    context_tok: int
    pairs: int
    ms: float
    staged_bytes: float = 0.0


def touched_share(n_tok: int, top_k: int, n_experts: int) -> float:
    """As `StepTimeModel.routed_share`."""
    return 1.0 - (1.0 - top_k / n_experts) ** n_tok


def fit_decode(steps: Sequence[TimedStep], top_k: int, n_experts: int, context_ns_per_tok: float = 0.0) -> Fit:
    """step_ms + expert_read_ms * share of experts touched + decode_ms_per_seq * n.

    Args:
        context_ns_per_tok: taken off first; steps with short contexts do not tell it.

    Raises:
        ConfigError: fewer than three different batch sizes.
    """
    n = np.array([s.decode_seqs for s in steps], dtype=np.float64)
    if len(set(n)) < 3:
        raise ConfigError(f"{len(set(n))} batch sizes of decode steps were timed; a fit needs at least 3")
    measured = np.array([s.ms - s.context_tok * context_ns_per_tok * 1e-6 for s in steps])
    share = np.array([touched_share(s.decode_seqs, top_k, n_experts) for s in steps])
    found, residuals = _fitted(np.stack([np.ones_like(n), share, n], axis=1), measured)
    names = ("step_ms", "expert_read_ms", "decode_ms_per_seq")
    return Fit(dict(zip(names, found, strict=True)), {"decode": residuals})


def fit_prefill(
    steps: Sequence[TimedStep], decode: Fit, *, launch_ms: float, top_k: int, n_experts: int, attention_ps: float | None
) -> Fit:
    """prefill_us_per_tok and, unless given, attention_ps_per_pair, of steps that the device bounds, not the host.

    Args:
        decode: what a step costs besides.
        launch_ms: steps that take at most 1.1 times as long are bound by launches and tell nothing.
        attention_ps: None fits it too, which needs steps with long contexts among them.

    Raises:
        ConfigError: no step is bound by the device.
    """
    bound = [s for s in steps if s.ms > 1.1 * launch_ms and s.prefill_tok]
    if not bound:
        raise ConfigError(
            f"no prefill step takes longer than 1.1 times {launch_ms:.1f} ms of launches; time longer ones"
        )
    c = decode.coefficients
    rest = np.array(
        [
            s.ms
            - c["step_ms"]
            - c["expert_read_ms"] * touched_share(s.prefill_tok + s.decode_seqs, top_k, n_experts)
            - c["decode_ms_per_seq"] * s.decode_seqs
            - (attention_ps or 0.0) * s.pairs * 1e-9
            for s in bound
        ]
    )
    columns = [[s.prefill_tok * 1e-3 for s in bound], [s.pairs * 1e-9 for s in bound]]
    found, residuals = _fitted(np.array(columns[: 1 if attention_ps is not None else 2]).T, rest)
    names = ("prefill_us_per_tok", "attention_ps_per_pair")
    return Fit(dict(zip(names, found, strict=False)), {"prefill": residuals})


def launch_floor_ms(steps: Sequence[TimedStep]) -> float:
    """What steps outside CUDA graphs take however few tokens they have: the median of the shorter half of them.

    Raises:
        ConfigError: no such step.
    """
    times = sorted(s.ms for s in steps)
    if not times:
        raise ConfigError("no step outside CUDA graphs was timed")
    return median(times[: max(1, len(times) // 2)])


def fit_routed_gbps(pairs: Sequence[tuple[TimedStep, float]]) -> Fit:
    """routed_gbps: bytes staged over what a step takes longer than without; pairs of (step, ms without).

    Raises:
        ConfigError: no step staged anything.
    """
    staged = [(s, plain_ms) for s, plain_ms in pairs if s.staged_bytes > 0]
    if not staged:
        raise ConfigError("no decode step staged experts; offload some first")
    gb = np.array([[s.staged_bytes * 1e-9] for s, _ in staged])
    found, residuals = _fitted(gb, np.array([s.ms - plain_ms for s, plain_ms in staged]))
    return Fit({"routed_gbps": 1e3 / found[0]}, {"routed": residuals})


def _fitted(columns: Rows, measured: Rows) -> tuple[list[float], list[float]]:
    """Coefficients, and residuals in percent."""
    weights = 1.0 / np.abs(measured)
    found, _ = nnls(columns * weights[:, None], measured * weights)
    residuals = 100.0 * (columns @ found - measured) * weights
    return [float(c) for c in found], [round(float(r), 2) for r in residuals]
