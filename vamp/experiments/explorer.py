"""One run's decisions, one after the other: pool, gap, the four costs, the choice."""

from __future__ import annotations

from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from vamp.errors import ConfigError
from vamp.experiments import fig9, replays, table4
from vamp.experiments.decisions import COST_OF, check_cheapest
from vamp.experiments.parameters import OnePlatform, OneRunParameters, Ratio
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.memory.geometry import GIB
from vamp.report import results, theme
from vamp.report.figures import decision_steps
from vamp.report.theme import SavedFigure
from vamp.sim.platforms import load_platform

NOTEBOOK = "19_decision_explorer"
_SHOWN = ("step", "t_s", "request_id", "phase", "gap_blk", "w_steps", "r_hit", "p_eff", "n_cand_shards")


class Params(OneRunParameters):
    """Attributes:
    workload: `inhouse`, a cell of the Fig. 9 sweep, or `replay`, a run of Table IV; both are shared with those.
    first, count: which decisions, by their number in the run.
    choice: only decisions that chose this plan; empty for all.
    """

    platform: OnePlatform = "h200_nvl_tp4"
    ratio: Ratio = 20.0
    workload: Literal["inhouse", "replay"] = "inhouse"
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 32
    first: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1, le=5000)] = 60
    choice: Literal["", "evict", "offload", "preempt", "offload_evict"] = ""


def spec(p: Params) -> RunSpec:
    """The run that Fig. 9 or Table IV has anyway."""
    if p.workload == "inhouse":
        return fig9.spec(p.backend, p.platform, p.ratio, p.concurrency, p.seed, p.scale)
    return replays.spec(table4.Params.check(platform=p.platform, ratio=p.ratio, scale=p.scale), p.ratio, p.seed)


def steps(p: Params, run: RunResult) -> pd.DataFrame:
    """The decisions asked for, one row each, `number` counted over the whole run; costs in ms, NaN where not feasible.

    Raises:
        ConfigError: the run has none of them.
        InvariantError: a choice was not the cheapest feasible plan.
    """
    for record in run.decisions:
        check_cheapest(record)
    rows = pd.DataFrame(run.decisions, columns=None if run.decisions else [*_SHOWN, "choice"])
    rows.insert(0, "number", range(len(rows)))
    chosen = rows[rows["choice"] == p.choice] if p.choice else rows
    chosen = chosen[chosen["number"] >= p.first].head(p.count)
    if chosen.empty:
        what = f"decisions for {p.choice}" if p.choice else "decisions"
        raise ConfigError(f"no {what} from number {p.first} on; the run has {len(rows)} in all: choose another range")
    block_gib = load_platform(p.platform).kv.block_bytes / GIB
    costs = {column.replace("_us", "_ms"): pd.to_numeric(chosen[column]) / 1e3 for column in COST_OF.values()}
    pool_gib = chosen["pool_after_blk"] * block_gib
    return chosen[["number", *_SHOWN]].assign(**costs, choice=chosen["choice"].fillna("none"), pool_gib=pool_gib)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as text: the costs with `-` where a plan was not feasible."""
    out = rows.set_index("number")
    for column in (c.replace("_us", "_ms") for c in COST_OF.values()):
        out[column] = ["-" if pd.isna(ms) else f"{ms:.3g}" for ms in out[column]]
    for column in ("t_s", "r_hit", "p_eff", "pool_gib"):
        out[column] = out[column].map("{:.2f}".format)
    return out


def counts(run: RunResult) -> pd.DataFrame:
    """How often each plan was chosen in the whole run, and how often it was feasible at all."""
    records = run.decisions
    return pd.DataFrame(
        [
            {
                "plan": plan,
                "score": column.removesuffix("_us"),
                "feasible": sum(r[column] is not None for r in records),
                "chosen": sum(r["choice"] == plan for r in records),
            }
            for plan, column in COST_OF.items()
        ]
    )


def figure(p: Params, spec: RunSpec, rows: pd.DataFrame) -> SavedFigure:
    load = f"c = {p.concurrency}" if p.workload == "inhouse" else "replay"
    heading = f"Decisions {rows['number'].iloc[0]} to {rows['number'].iloc[-1]} of {spec.system}, {load}, seed {p.seed}"
    where = theme.origin(
        p.backend, stand_in=p.workload == "replay", scale=p.scale, note=load_platform(p.platform).title
    )
    fig = decision_steps(rows, heading=heading, where=where)
    return theme.save_figure(fig, rows, notebook=NOTEBOOK, name="steps", backend=p.backend)


def save(p: Params, run: RunResult, rows: pd.DataFrame) -> results.Results:
    """Nothing of the paper is measured here; the rows and the counts are kept."""
    results.save_frame(NOTEBOOK, "steps", p.backend, rows)
    return p.save(
        NOTEBOOK,
        summaries=counts(run),
    )


def verdict(run: RunResult) -> str:
    """One line without measured digits: the invariant that every record was checked for."""
    return "every choice is the cheapest feasible plan of its record" if run.decisions else "no decision in this run"
