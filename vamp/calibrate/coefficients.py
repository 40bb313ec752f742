"""From a profile's rows to the step-time coefficients of a platform; what was not measured is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vamp.calibrate.fit import (
    Fit,
    TimedStep,
    fit_decode,
    fit_prefill,
    fit_routed_gbps,
    launch_floor_ms,
)
from vamp.calibrate.profile import Copy, Fitted, Model, Profile, Step
from vamp.errors import ConfigError

DEFAULTS = {
    "context_ns_per_tok": (2.6, "assumed: 12,288 B of keys and values per token at 4.8 TB/s (Qwen3-Next, H200)"),
    "attention_ps_per_pair": (150.0, "assumed: two thirds of an H200's 989 TFLOP/s; no step with a long context"),
    "h2d_gbps": (54.4, "of one H200: no copy from the host was timed"),
    "remap_us_per_page": (100.0, "of one H200: no remap was timed"),
    "remap_ms": (3.5, "of one H200: pauses of a running decode, less the pages; not part of this calibration"),
    "noise_sd": (0.02, "assumed"),
}
"""What stands in for a coefficient that was not measured: value and what the profile says of it."""


@dataclass
class _Found:
    values: dict[str, float] = field(default_factory=dict)
    residuals: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, work: Callable[[], Fit]) -> Fit | None:
        """The fit, kept; a failed one is noted."""
        try:
            fit = work()
        except ConfigError as err:
            self.failures[f"fit of {name}"] = str(err)
            return None
        self.values |= fit.coefficients
        self.residuals |= fit.residuals_pct
        return fit


def fitted(profile: Profile) -> Profile:
    """The profile with its fits. Without timed steps of a model there is nothing that `sim` could use."""
    if profile.model is None or not profile.steps:
        return profile
    found = _Found()
    _from_steps(found, profile.model, profile.steps)
    _from_copies(found, profile)
    left = {name: default for name, default in DEFAULTS.items() if name not in found.values}
    values = found.values | {name: value for name, (value, _) in left.items()} | {"graph_tok": profile.model.graph_tok}
    result = Fitted(
        coefficients=values, residuals_pct=found.residuals, from_defaults={name: why for name, (_, why) in left.items()}
    )
    return profile.model_copy(update={"fitted": result, "failures": profile.failures | found.failures})


def _from_steps(found: _Found, model: Model, steps: tuple[Step, ...]) -> None:
    sizes = {"top_k": model.top_k, "n_experts": model.n_experts}
    plain = [s for s in steps if not s.groups]
    decode = [_timed(s) for s in plain if s.kind == "decode"]
    base = found.take("decode steps", lambda: fit_decode(decode, **sizes, context_ns_per_tok=_context_ns()))
    outside = [_timed(s) for s in plain if s.kind == "mixed" and s.n_steps == 1 and s.prefill_tok > model.graph_tok]
    if base is None or not outside:
        return
    launch_ms = _launch_ms(outside) if model.graph_tok else 0.0
    long_context = any(s.pairs > 2 * s.prefill_tok**2 for s in outside)
    ps = None if long_context else DEFAULTS["attention_ps_per_pair"][0]
    found.take("prompt steps", lambda: fit_prefill(outside, base, launch_ms=launch_ms, **sizes, attention_ps=ps))
    found.values["launch_ms"] = launch_ms
    by_n = {s.decode_seqs: s.ms for s in decode}
    routed = [_timed(s) for s in steps if s.kind == "decode" and s.groups and s.decode_seqs in by_n]
    if routed:
        found.take("routed staging", lambda: fit_routed_gbps([(s, by_n[s.decode_seqs]) for s in routed]))


def _launch_ms(outside: list[TimedStep]) -> float:
    """The floor under steps outside graphs, if there is one: short prompts that take as long as longer ones.

    Where the time grows with the tokens from the shortest on, the device is the limit, and half of the shortest step is
    all that launches can take without showing.
    """
    by_length = sorted(outside, key=lambda s: s.prefill_tok)
    flat = [s for s in by_length if s.ms <= 1.25 * by_length[0].ms]
    longest = flat[-1].prefill_tok / flat[0].prefill_tok
    return launch_floor_ms(flat) if longest >= 2 else by_length[0].ms / 2


def _context_ns() -> float:
    return DEFAULTS["context_ns_per_tok"][0]


def _timed(s: Step) -> TimedStep:
    return TimedStep(s.prefill_tok, s.decode_seqs, s.context_tok, s.pairs, s.ms.median, s.staged_bytes)


def _from_copies(found: _Found, profile: Profile) -> None:
    bulk = [c for c in profile.copies if c.direction == "h2d" and c.way == "engine"] or [
        c for c in profile.copies if c.direction == "h2h"
    ]
    if bulk:
        found.values["h2d_gbps"] = max(bulk, key=_size).gb_per_s.median
    if profile.remaps:
        largest = max(profile.remaps, key=lambda r: r.pages)
        found.values["remap_us_per_page"] = 1e3 * largest.grow_ms.median / largest.pages


def _size(copy: Copy) -> int:
    return copy.nbytes
