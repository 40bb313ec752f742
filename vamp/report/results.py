"""The results files: artifact/results/<notebook>/results.<backend>.json, one per notebook and backend.

Form: {"notebook", "backend", "parameters", "seeds", "environment", "values": [{"id", "platform", "paper",
"measured", "sd", "n", "unit", "tolerance", "verdict", "note"}], "summaries": [...]}. `measured` is null where
nothing was measured, and where the measurement is "none" (a boundary that was not crossed). `summaries` holds
what the runs gave for every system, also where the paper prints nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from vamp.errors import ClaimError
from vamp.experiments.environment import environment
from vamp.paths import results_dir
from vamp.report.claims import ClaimVerdict, claim_verdicts
from vamp.report.rules import load_rules
from vamp.report.tables import verdict_table
from vamp.report.values import matching_ids, paper_value
from vamp.report.verdicts import VERDICTS, Judgement, Measured, Verdict, is_cited, judge, tolerance_text
from vamp.sim.platforms import load_platform, platform_names
from vamp.workloads.agents import FITTED_TO as AGENTS_FITTED_TO
from vamp.workloads.lmcache_standin import FITTED_TO as LMCACHE_FITTED_TO

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """One results file."""

    notebook: str
    backend: str
    parameters: Json
    seeds: list[int]
    environment: Json
    values: list[Json]
    summaries: list[Json] = field(default_factory=list)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        return {row["id"]: row["verdict"] for row in self.values}

    @property
    def claims(self) -> list[ClaimVerdict]:
        """Claims that this notebook decides; values from another platform than the paper's do not count."""
        rules = load_rules()
        own = {r["id"]: r["verdict"] for r in self.values if r["platform"] == rules.rule(r["id"]).platform}
        return claim_verdicts(own, self.notebook)

    def table(self) -> pd.DataFrame:
        """id, paper, measured, delta, tolerance, verdict, backend."""
        return verdict_table(self.values, self.backend)

    def text(self) -> str:
        """The verdict table as plain text, everything that was measured first, and the counts."""
        shown = [row for row in self.values if row["verdict"] in ("match", "trend", "miss")]
        table = verdict_table(shown, self.backend).to_string(index=False) if shown else "nothing was measured"
        return f"{table}\n\n{self.counts()}"

    def counts(self) -> str:
        """`match 3 · trend 12 · miss 0 · not_run 1 · cited 8`."""
        found = list(self.verdicts.values())
        return " · ".join(f"{v} {found.count(v)}" for v in VERDICTS)

    def claim_lines(self) -> str:
        """One line per claim that this notebook decides: short and without measured digits."""
        return "\n".join(f"{c.claim.id}: {c.verdict} ({c.ran} of {c.total} deciding values)" for c in self.claims)


def _plain(x: Any) -> Any:
    """JSON-able; nan and infinities become null; numbers keep six digits."""
    if isinstance(x, Mapping):
        return {str(k): _plain(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(v) for v in x]
    if hasattr(x, "item") and not isinstance(x, str):
        x = x.item()
    if isinstance(x, float):
        return float(f"{x:.6g}") if math.isfinite(x) else None
    return x


@cache
def fitted_ids() -> frozenset[str]:
    """Values that the simulator's coefficients or workloads were fitted to: agreement there predicts nothing."""
    by_platforms = {i for name in platform_names() for i in load_platform(name).fitted_to}
    return frozenset(by_platforms | {*AGENTS_FITTED_TO, *LMCACHE_FITTED_TO})


def _row(value_id: str, own: Measured | None, judgement: Judgement, platform: str, backend: str) -> Json:
    fitted = own is not None and backend == "sim" and value_id in fitted_ids()
    paper = paper_value(value_id)
    kept = own if own is not None and judgement.verdict in ("match", "trend", "miss") else None
    return {
        "id": value_id,
        "platform": own.platform if own is not None else platform,
        "paper": _plain(paper.value),
        "measured": _plain(kept.value) if kept else None,
        "sd": _plain(kept.sd) if kept else None,
        "n": int(kept.n) if kept else None,
        "unit": paper.unit,
        "tolerance": judgement.tolerance,
        "verdict": judgement.verdict,
        "note": "; ".join(part for part in ("fitted to" if fitted else "", judgement.note) if part),
    }


def _judged(value_id: str, own: Measured | None, all_own: Mapping[str, Measured], backend: str, why: str) -> Json:
    rules = load_rules()
    paper, rule = paper_value(value_id), rules.rule(value_id)
    if own is not None:
        others = {i: m.value for i, m in all_own.items()}
        return _row(value_id, own, judge(own, others, backend=backend, rules=rules), rule.platform, backend)
    text = tolerance_text(paper, None, rule, rules.limits)
    verdict: Verdict = "cited" if is_cited(paper, rule) else "not_run"
    return _row(value_id, None, Judgement(verdict, text, why if verdict == "not_run" else ""), rule.platform, backend)


def judged_rows(covers: Iterable[str], measured: Sequence[Measured], backend: str, why_not: str = "") -> list[Json]:
    """One row per covered id, in the paper's order.

    Args:
        covers: patterns of the ids that the notebook answers for.
        why_not: the reason written beside ids that were not measured.

    Raises:
        ClaimError: an id was measured twice or is not covered.
    """
    own = {m.id: m for m in measured}
    ids = matching_ids(*covers)
    if len(own) < len(measured):
        raise ClaimError("an id was measured twice: " + ", ".join(sorted(m.id for m in measured)))
    if stray := sorted(set(own) - set(ids)):
        raise ClaimError(f"measured but not covered by this notebook: {', '.join(stray)}")
    return [_judged(i, own.get(i), own, backend, why_not) for i in ids]


def save(
    notebook: str,
    *,
    backend: str,
    parameters: Mapping[str, Any],
    covers: Iterable[str],
    measured: Sequence[Measured],
    seeds: Sequence[int] = (),
    summaries: pd.DataFrame | None = None,
    why_not: str = "",
) -> Results:
    """Judge, write the file in one step, and return what was written.

    Args:
        parameters: of the notebook. covers, measured, why_not: see `judged_rows`.
        summaries: one row per system or run, whatever the paper prints of it.
    """
    results = Results(
        notebook=notebook,
        backend=backend,
        parameters=_plain(parameters),
        seeds=list(seeds),
        environment=environment(),
        values=judged_rows(covers, measured, backend, why_not),
        summaries=[] if summaries is None else [_plain(s) for s in summaries.to_dict("records")],
    )
    content = {name: getattr(results, name) for name in Results.__slots__}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(results_path(notebook, backend), (text + "\n").encode())
    return results


def results_path(notebook: str, backend: str) -> Path:
    return results_dir() / notebook / f"results.{backend}.json"


def save_frame(notebook: str, name: str, backend: str, frame: pd.DataFrame) -> Path:
    """Rows behind a result as <name>.<backend>.parquet beside it."""
    path = results_dir() / notebook / f"{name}.{backend}.parquet"
    write_atomically(path, frame.to_parquet(index=False))
    return path


def load(path: Path) -> Results:
    """Read one results file.

    Raises:
        ClaimError: the file is no results file; it names the file and what is wrong.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Results(**{name: raw[name] for name in Results.__slots__})
    except (OSError, ValueError, KeyError, TypeError) as err:
        name = f"{path.parent.name}/{path.name}"
        raise ClaimError(f"{name} is no results file ({err!r}); run the notebook again") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, then replace it: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
