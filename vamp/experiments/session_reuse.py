"""Figs. 2 and 3: what becomes of one session's blocks, turn by turn, while other sessions crowd it out.

The runs are Fig. 9's, where vLLM's own KV-cache manager decides what stays: c sessions, each turn a fixed growth
longer, so that the pool overflows some turns into the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import pandas as pd
from pydantic import Field

from vamp.errors import ConfigError
from vamp.experiments import fig9
from vamp.experiments.parameters import OnePlatform, Parameters, Ratio, find_platform
from vamp.experiments.spec import RunSpec
from vamp.measure.latency import finished
from vamp.measure.records import RunResult
from vamp.report import results, theme
from vamp.report.figures import session_strips
from vamp.report.figures.reuse import FATES
from vamp.report.tables import number
from vamp.report.theme import SavedFigure
from vamp.sim.platforms import load_platform

NOTEBOOK = "06_fig2_3_session_reuse"
COVERS = ("bg.eviction_turn_example", "motivation.lru_eviction_blocks", "motivation.reprefills_example")
REUSED, EVICTED, NEW = FATES


class Params(Parameters):
    """`session`: which of the sessions is shown. `turns`: of it, from the first."""

    platform: OnePlatform = "h100_pcie_tp2"
    ratio: Ratio = 25.0
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 28
    turns: Annotated[int, Field(ge=2, le=12)] = 6
    session: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 0
    jobs: Annotated[int, Field(ge=0)] = 0

    @property
    def n_jobs(self) -> int | None:
        return self.jobs or None


def specs(p: Params) -> list[RunSpec]:
    """vLLM and VAMP-r, one run each."""
    return [fig9.spec(p.backend, p.platform, ratio, p.concurrency, p.seed) for ratio in (0.0, p.ratio)]


def turns(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per system and turn of the chosen session, turns counted from 1.

    Returns:
        Columns system, turn, prompt_tok, reused_tok, evicted_tok (of the whole blocks that the previous turn left
        behind, those not found again), new_tok, ttft_s, preempted.

    Raises:
        ConfigError: no such session.
    """
    if p.session >= p.concurrency:
        raise ConfigError(f"session is {p.session}; with {p.concurrency} sessions it must be below {p.concurrency}")
    block_tok = load_platform(p.platform).kv.block_tok
    return pd.concat([_of(s, run, p, block_tok) for s, run in zip(specs, runs, strict=True)], ignore_index=True)


def _of(spec: RunSpec, run: RunResult, p: Params, block_tok: int) -> pd.DataFrame:
    done = finished(run.requests)
    session = sorted(done["session_id"].unique())[p.session]
    own = done[done["session_id"] == session].sort_values("turn").head(p.turns).reset_index(drop=True)
    left_tok = ((own["prompt_tok"] + own["output_tok"]) // block_tok * block_tok).shift(fill_value=0)
    evicted = (left_tok - own["cached_tok"]).clip(lower=0)
    return pd.DataFrame(
        {
            "system": spec.system,
            "turn": own["turn"] + 1,
            "prompt_tok": own["prompt_tok"],
            "reused_tok": own["cached_tok"],
            "evicted_tok": evicted,
            "new_tok": own["prompt_tok"] - own["cached_tok"] - evicted,
            "ttft_s": pd.to_numeric(own["first_token_s"]) - own["arrival_s"],
            "preempted": own["n_preemptions"],
        }
    )


def table(turns: pd.DataFrame) -> pd.DataFrame:
    """Growth and reuse of the session, tokens (Fig. 2(b)), with TTFT."""
    shown = turns.assign(ttft_s=turns["ttft_s"].map(number))
    return shown.set_index(["system", "turn"]).rename(
        columns=lambda c: c.replace("_tok", ", tokens").replace("_s", ", s")
    )


def first_eviction(turns: pd.DataFrame, system: str) -> int | None:
    """The first turn that finds blocks of the turn before it gone; None when none does."""
    lost = turns[(turns["system"] == system) & (turns["evicted_tok"] > 0)]
    return int(lost["turn"].iloc[0]) if len(lost) else None


def lines(p: Params, turns: pd.DataFrame) -> str:
    """One line per system."""
    out = []
    for system in theme.in_order(turns["system"]):
        first = first_eviction(turns, system)
        said = (
            f"blocks are gone and recomputed from turn {first}"
            if first
            else f"all blocks are there up to turn {p.turns}"
        )
        out.append(f"{system}: {said}")
    return "\n".join(out)


def figure(p: Params, turns: pd.DataFrame) -> SavedFigure:
    block_tok = load_platform(p.platform).kv.block_tok
    columns = {"reused_tok": REUSED, "evicted_tok": EVICTED, "new_tok": NEW}
    parts = turns.rename(columns=columns).melt(["system", "turn"], list(columns.values()), "part", "blk")
    parts = parts.assign(blk=parts["blk"] / block_tok)
    heading = f"Figs. 2 and 3: one of {p.concurrency} sessions, turn by turn, {find_platform(p.platform).title}"
    where = theme.origin(p.backend, note=f"blocks of {block_tok} tokens")
    fig = session_strips(parts, turns, heading=heading, where=where)
    return theme.save_figure(fig, turns, notebook=NOTEBOOK, name="session", backend=p.backend)


def save(p: Params, turns: pd.DataFrame) -> results.Results:
    """The paper's figures are illustrations: nothing is judged. What was measured is in `summaries`."""
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        summaries=turns,
    )
