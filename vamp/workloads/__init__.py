"""Workloads: generators, the stand-in for the paper's recording, and loaders for public recordings."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vamp.errors import ConfigError, TraceError
from vamp.workloads.assumptions import assumptions as checked_assumptions
from vamp.workloads.inhouse import TURNS
from vamp.workloads.inhouse import inhouse as inhouse_trace
from vamp.workloads.lmcache_standin import lmcache_standin
from vamp.workloads.loaders import load_trace
from vamp.workloads.loaders.reading import files_below, name_below
from vamp.workloads.standin import pick
from vamp.workloads.standin import standin as standin_trace
from vamp.workloads.trace import Trace

if TYPE_CHECKING:
    from vamp.experiments.spec import WorkloadSpec

__all__ = ["build_trace", "load_trace", "sha256_of"]


def build_trace(spec: WorkloadSpec, *, seed: int, growth_tok: int, output_tok: int) -> Trace:
    """The workload that a spec names.

    Args:
        spec: `concurrency` of a recorded trace is the engine's to keep; the trace has all of its sessions.
        seed: of the run. In-house: token ids; replay: starts of the sessions; trace: not used.
        growth_tok, output_tok: the platform's declared in-house values; the spec's win.

    Raises:
        ConfigError: an unknown override, or values that contradict each other.
        TraceError: the recording cannot be used.
    """
    if spec.kind == "replay":
        return standin_trace(checked_assumptions(spec.overrides), seed, spec.scale).limited(spec.limit_turns)
    if spec.kind == "lmcache":
        return lmcache_standin(spec.overrides, max(2, round((spec.concurrency or 1) * spec.scale)), seed)
    if spec.overrides:
        raise ConfigError(
            f"workload {spec.kind!r} takes no overrides, got {', '.join(sorted(spec.overrides))}; "
            "only 'replay', 'agents' and 'lmcache' have named assumptions"
        )
    if spec.kind == "inhouse":
        if spec.concurrency is None:
            raise ConfigError("workload 'inhouse' needs concurrency, the number of sessions")
        trace = inhouse_trace(
            spec.concurrency,
            spec.growth_tok or growth_tok,
            spec.output_tok or output_tok,
            seed,
            spec.scale,
            first_tok=spec.first_tok,
            turns=spec.turns or TURNS,
        )
        return trace.limited(spec.limit_turns)
    if spec.trace_path is None:
        raise ConfigError("workload 'trace' needs trace_path, a file or a folder")
    trace = _thinned(load_trace(spec.trace_path, spec.limit_turns), spec.scale)
    return trace.repeated(spec.copies) if spec.sessions is None else _with_sessions(trace, spec.sessions)


def _with_sessions(trace: Trace, n: int) -> Trace:
    """`n` sessions: whole copies, then evenly spaced ones of another copy."""
    whole, rest = divmod(n, len(trace.sessions))
    copies = trace.repeated(whole + bool(rest))
    begin = whole * len(trace.sessions)
    kept = [*range(begin), *(begin + i for i in (pick(range(len(trace.sessions)), rest) if rest else ()))]
    return replace(copies, sessions=tuple(copies.sessions[i] for i in kept))


def _thinned(trace: Trace, scale: float) -> Trace:
    """That part of the sessions, evenly spaced, one at least."""
    kept = pick(range(len(trace.sessions)), max(1, round(len(trace.sessions) * scale)))
    return replace(trace, sessions=tuple(trace.sessions[i] for i in kept))


def sha256_of(path: str | Path) -> str:
    """Hash of a file's content, or of the names and contents of all files below a folder.

    Raises:
        TraceError: nothing is there, or it cannot be read.
    """
    root = Path(path)
    files = files_below(root)
    try:
        contents = [_file_sha256(file) for file in files]
    except OSError as err:
        raise TraceError(f"cannot be read ({err.strerror})", file=str(err.filename)) from None
    if files == [root]:
        return contents[0]
    named = [f"{name_below(root, file)}\0{content}\n" for file, content in zip(files, contents, strict=True)]
    return hashlib.sha256("".join(named).encode()).hexdigest()


def _file_sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
