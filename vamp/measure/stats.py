"""Over runs: mean, standard deviation, bootstrap interval. A run without a value (NaN) is no observation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.stats import bootstrap  # type: ignore[attr-defined]  # scipy has no stubs

from vamp.measure.latency import Seconds


class Estimate(NamedTuple):
    """`mean` ± `sd` over `n` runs, as the paper prints them; sd is NaN for fewer than two runs."""

    mean: float
    sd: float
    n: int


def estimate(values: Iterable[float]) -> Estimate:
    """Mean, SD with n - 1 in the denominator, and the number of runs that had a value."""
    x = _known(values)
    if len(x) == 0:
        return Estimate(float("nan"), float("nan"), 0)
    return Estimate(float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else float("nan"), len(x))


def bootstrap_ci(values: Iterable[float], *, confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """BCa interval of the mean; NaN for fewer than two runs, a point when all agree."""
    x = _known(values)
    if len(x) < 2:
        return float("nan"), float("nan")
    if np.ptp(x) == 0:  # BCa has no acceleration to estimate and would return NaN
        return float(x[0]), float(x[0])
    ci = bootstrap((x,), np.mean, confidence_level=confidence, method="BCa", rng=seed).confidence_interval
    return float(ci.low), float(ci.high)


def _known(values: Iterable[float]) -> Seconds:
    x = np.fromiter(values, dtype=np.float64)
    known: Seconds = x[~np.isnan(x)]
    return known
