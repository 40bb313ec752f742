"""The simulator against a real GPU: the sessions of a recording once more in virtual time, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from vamp.experiments.parameters import OnePlatform, Parameters
from vamp.experiments.recorded_cliff import RecordedRun, load_cliff
from vamp.measure import latency
from vamp.measure.hit_rate import request_hit_rate_pct
from vamp.measure.records import RunResult
from vamp.report import results, theme
from vamp.report.figures import ttft_pairs
from vamp.report.theme import SavedFigure

NOTEBOOK = "18_sim_against_recorded"
WITHIN_PCT = 20.0
"""What the simulated value may be off."""
CHECKED = ("TTFT p50, s", "TTFT p90, s", "TPOT, ms", "hit rate, %")
"""Quantities that have to be within it; the others are shown beside them."""


class Params(Parameters):
    """Attributes: recording: name of a file under data/recorded that tools.gpu.cliff made."""

    platform: OnePlatform = "h200_tp2_rank"
    recording: str = "h200_tp2_rank_cliff"


def recorded(p: Params) -> list[RecordedRun]:
    return load_cliff(p.recording, p.platform)


def quantities(requests: pd.DataFrame) -> dict[str, float]:
    """What is compared, of turns after the first; requests/s over all turns."""
    steady = requests[requests["turn"] > 0]
    p50, p90, p99 = latency.percentiles(latency.ttft_s(steady), (50, 90, 99))
    return {
        "TTFT p50, s": p50,
        "TTFT p90, s": p90,
        "TPOT, ms": latency.mean(latency.tpot_ms(steady)),
        "hit rate, %": request_hit_rate_pct(steady),
        "TTFT p99, s": p99,
        "requests/s": len(requests) / float(requests["finish_s"].max() - requests["arrival_s"].min()),
    }


def simulated_facts(run: RunResult) -> dict[str, int]:
    """As `RecordedRun.facts`."""
    decided = run.meta["decisions"]
    return {
        "steps": run.meta["steps"],
        "pool_blk": run.meta["pool_blk"],
        "preemptions": len(run.preemption_s),
        "offloads": decided.get("offload", 0) + decided.get("offload_evict", 0),
        "evictions": decided.get("evict", 0),
    }


def comparison(real: Sequence[RecordedRun], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per run and quantity: recorded, simulated, ratio, within (empty for what is only shown).

    Counts do not depend on step times: there, ratio 1 says that scheduler, pool and controller did the same.
    """
    rows = []
    for one, run in zip(real, runs, strict=True):
        left = quantities(one.requests) | one.facts
        right = quantities(run.requests) | simulated_facts(run)
        for name, value in left.items():
            ratio = right[name] / value if value else math.nan if right[name] else 1.0
            within = ("yes" if abs(ratio - 1) <= WITHIN_PCT / 100 else "no") if name in CHECKED else ""
            rows.append((one.label, name, value, right[name], ratio, within))
    return pd.DataFrame(rows, columns=["run", "quantity", "recorded", "simulated", "ratio", f"within {WITHIN_PCT:g} %"])


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """`comparison`, numbers as text."""
    digits = {"recorded": "{:.4g}", "simulated": "{:.4g}", "ratio": "{:.2f}"}
    return rows.assign(**{name: rows[name].map(form.format) for name, form in digits.items()})


def verdict_lines(rows: pd.DataFrame) -> str:
    """One line per checked quantity: how many runs are within the limit, and which are not."""
    lines = []
    for name in CHECKED:
        of = rows[rows["quantity"] == name]
        off = of.loc[of[f"within {WITHIN_PCT:g} %"] == "no", "run"]
        missed = f"; not: {', '.join(off)}" if len(off) else ""
        lines.append(f"{name.partition(',')[0]}: {len(of) - len(off)} of {len(of)} within {WITHIN_PCT:g} %{missed}")
    return "\n".join(lines)


def figure(p: Params, real: Sequence[RecordedRun], runs: Sequence[RunResult]) -> SavedFigure:
    """Distributions of TTFT, recorded and simulated, one panel per run."""
    frames = []
    for one, run in zip(real, runs, strict=True):
        for source, requests in (("recorded", one.requests), ("simulated", run.requests)):
            ttft_s = latency.ttft_s(requests[requests["turn"] > 0])
            frames.append(
                pd.DataFrame({"run": one.label, "system": one.spec.system, "source": source, "ttft_s": ttft_s})
            )
    rows = pd.concat(frames, ignore_index=True)
    where = f"simulated beside one recorded run each; {p.platform}, random weights"
    fig = ttft_pairs(rows, heading="The simulator against a real GPU", where=where)
    return theme.save_figure(fig, rows, notebook=NOTEBOOK, name="ttft", backend=p.backend)


def save(p: Params, rows: pd.DataFrame) -> results.Results:
    """The results file: the comparison as its summaries; none of the paper's values is measured here."""
    return p.save(NOTEBOOK, summaries=rows)
