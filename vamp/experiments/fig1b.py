"""Fig. 1(b): the prefix-cache cliff of plain vLLM, from the sweep of Fig. 9 and a few smaller loads."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from vamp.experiments import fig9
from vamp.experiments.frames import group_rows, run_rows
from vamp.experiments.parameters import Concurrencies, Platforms, RunParameters, find_platform, platforms_of
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult
from vamp.report import results, theme
from vamp.report.figures import prefix_cliff
from vamp.report.tables import number, with_sd
from vamp.report.theme import SavedFigure
from vamp.sim.platforms import load_platform
from vamp.workloads.inhouse import TURNS

NOTEBOOK = "05_fig1b_prefix_cliff"
COVERS = ()  # the paper prints no point of this figure
BELOW = {"h100_pcie_tp2": (4, 8, 12)}  # the paper's sweep starts past vLLM's cliff there


class Params(RunParameters):
    """`concurrency`: session counts; empty takes Fig. 9's for each platform, and smaller ones where all are past the
    cliff."""

    platform: Platforms = "both"
    concurrency: Concurrencies = ()

    def sweep(self, platform: str) -> tuple[int, ...]:
        return self.concurrency or (*BELOW.get(platform, ()), *fig9.paper_sweep(platform))


def specs(p: Params) -> list[RunSpec]:
    """vLLM alone; what Fig. 9 sweeps too are the same runs."""
    return [
        fig9.spec(p.backend, platform, 0.0, c, seed, p.scale)
        for platform in platforms_of(p.platform)
        for c in p.sweep(platform)
        for seed in p.seeds
    ]


def demand(platform: str, concurrency: int, scale: float = 1.0) -> float:
    """Longest prompts and replies of all sessions together over the pool, both in blocks of attention state.

    A lower bound: gated-delta-net states take blocks too.
    """
    pl = load_platform(platform)
    n_turns = max(2, round(TURNS * scale))
    longest_tok = n_turns * pl.inhouse_growth_tok + pl.inhouse_output_tok
    return concurrency * -(-longest_tok // pl.kv.block_tok) / pl.base_blk


def cells(p: Params, specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per platform and concurrency, with `demand`."""
    rows = group_rows(run_rows(specs, runs))
    needs = [demand(str(r["platform"]), int(r["concurrency"]), p.scale) for r in rows.to_dict("records")]
    return rows.assign(demand=needs)


def table(cells: pd.DataFrame) -> pd.DataFrame:
    """Demand, hit rate and TTFT p99 of every cell."""
    return pd.DataFrame(
        {
            "platform": cells["platform"],
            "sessions": cells["concurrency"],
            "prefixes / pool": cells["demand"].map(number),
            "prompt tokens from the cache, %": cells["hit_rate_per_request_pct"].map(number),
            "hit rate (server counters), %": cells["hit_rate_pct"].map(number),
            "TTFT p99, s": [with_sd(m, s) for m, s in zip(cells["ttft_p99_s"], cells["ttft_p99_s_sd"], strict=True)],
            "preemptions": cells["n_preemptions"].map(number),
        }
    )


def cliff(cells: pd.DataFrame, platform: str) -> tuple[int | None, int | None]:
    """Sessions of the last cell before the cliff and of the first past it, by Fig. 9's rule; None: there is none."""
    own = cells[cells["platform"] == platform].sort_values("concurrency")
    past = fig9.boundary(own, platform, "vLLM", fig9.thresholds(own)[platform])
    below = own.loc[own["concurrency"] < past, "concurrency"] if past is not None else own["concurrency"]
    return (int(below.iloc[-1]) if len(below) else None), past


def verdict(cells: pd.DataFrame, platform: str) -> str:
    """Where TTFT leaves its plateau, and whether the hit rate breaks in the same place: one line."""
    before, past = cliff(cells, platform)
    if past is None or before is None:
        return f"{platform}: no cliff inside the sweep"
    hits = cells[cells["platform"] == platform].set_index("concurrency")["hit_rate_per_request_pct"]
    broke = "falls" if hits[past] < hits[before] else "does not fall"
    return f"{platform}: TTFT p99 leaves its plateau between {before} and {past} sessions; the hit rate {broke} there"


def lines(cells: pd.DataFrame) -> str:
    return "\n".join(verdict(cells, str(name)) for name in dict.fromkeys(cells["platform"]))


def figure(p: Params, cells: pd.DataFrame) -> SavedFigure:
    columns = ["platform", "concurrency", "demand", "hit_rate_per_request_pct", "ttft_p99_s"]
    data = cells[columns].replace({"platform": {n: find_platform(n).title for n in platforms_of(p.platform)}})
    where = theme.origin(p.backend, scale=p.scale, note=f"n = {p.repeats}")
    fig = prefix_cliff(data, heading="Fig. 1(b): the prefix-cache cliff of plain vLLM", where=where)
    return theme.save_figure(fig, data, notebook=NOTEBOOK, name="cliff", backend=p.backend)


def save(p: Params, cells: pd.DataFrame) -> results.Results:
    """No value of the paper is judged: it prints none of this figure. What was measured is in `summaries`."""
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        summaries=cells,
    )
