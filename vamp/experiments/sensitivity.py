"""Table IV with one assumption changed at a time: how much hangs on each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vamp.experiments import replays, table4
from vamp.experiments.frames import run_rows
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.paths import data_dir, results_dir
from vamp.report.results import write_atomically
from vamp.workloads.assumptions import assumptions

CHANGE = 0.2
SPAN_S = 1800.0  # virtual; past the end of the measurement interval, where the runs may stop
STEP_TIME = (
    "step_ms",
    "prefill_us_per_tok",
    "decode_ms_per_seq",
    "context_ns_per_tok",
    "tp_bus_gbps",
    "h2d_gbps",
)
WORKLOAD = ("first_tok", "output_tok", "think_s", "tool_tok")
_SHOWN = ("requests_per_s", "ttft_p90_s", "queue_mean_s", "preemptions_per_1k", "hit_rate_pct", "tpot_ms")


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Name and spec changes: as declared, then each assumption 20 % lower and higher."""
    declared = assumptions({})
    out: list[tuple[str, dict[str, Any]]] = [("as declared", {})]
    for factor in (1 - CHANGE, 1 + CHANGE):
        out += [(f"{name} x{factor:g}", {"step_time": {name: factor}}) for name in STEP_TIME]
        out += [(f"{name} x{factor:g}", {"overrides": {name: getattr(declared, name) * factor}}) for name in WORKLOAD]
    return out


def specs(p: table4.Params) -> list[RunSpec]:
    """vLLM and VAMP-r of the first seed for every variant; none when the parameter is off."""
    if not p.sensitivity:
        return []
    return [
        replays.spec(p, ratio, p.seed, max_virtual_s=SPAN_S, **change)
        for _, change in variants()
        for ratio in (0.0, p.ratio)
    ]


def table(p: table4.Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per variant: `vLLM / VAMP-r` for each metric, and the factor between the two TTFT p90.

    Without runs it is the stored table (data/sensitivity_table4.csv: VAMP-15, first seed, simulated), since the runs
    take minutes. With runs the table is also written beside the notebook's results; copy it over the
    stored one when the model has changed. All rows, "as declared" too, stop at `SPAN_S`, so TPOT is of that part only.
    """
    if not specs:
        return pd.read_csv(stored_path())
    rows = run_rows(specs, runs)
    base, own = rows.iloc[0::2].reset_index(drop=True), rows.iloc[1::2].reset_index(drop=True)
    out = pd.DataFrame({"variant": [name for name, _ in variants()]})
    for column in _SHOWN:
        out[f"{column}, vLLM / {p.system}"] = [
            f"{a:.3g} / {b:.3g}" for a, b in zip(base[column], own[column], strict=True)
        ]
    out["TTFT p90, x lower"] = (base["ttft_p90_s"] / own["ttft_p90_s"]).map("{:.1f}".format)
    write_atomically(results_dir() / table4.NOTEBOOK / f"sensitivity.{p.backend}.csv", out.to_csv(index=False).encode())
    return out


def stored_path() -> Path:
    """The table that the notebook shows unless it is asked to run the variants again."""
    return data_dir() / "sensitivity_table4.csv"
