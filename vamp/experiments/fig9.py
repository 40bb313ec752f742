"""Fig. 9: where TTFT p99 leaves its plateau as more sessions run at once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from vamp.errors import ConfigError
from vamp.experiments.frames import find, group_rows, run_rows
from vamp.experiments.parameters import (
    PAPER_PLATFORMS,
    Concurrencies,
    Platforms,
    Ratios,
    RunParameters,
    find_platform,
    platforms_of,
)
from vamp.experiments.recording import recorded_ones
from vamp.experiments.spec import RunSpec, make_spec
from vamp.measure.records import RunResult
from vamp.report import results, theme
from vamp.report.figures import capacity_boundary
from vamp.report.tables import with_sd
from vamp.report.theme import SavedFigure
from vamp.report.values import load_values, matching_ids
from vamp.report.verdicts import Measured

NOTEBOOK = "11_fig9_capacity_boundary"
COVERS = ("fig9.*", "sweep.*")
PAPER_RATIOS = (0.0, 15.0, 20.0, 25.0)
COLLAPSE_FACTOR = 2.0  # a boundary is crossed where TTFT p99 exceeds so many times the platform's lowest
KEYS = {"h100_pcie_tp2": "h100", "h200_tp2_rank": "h100", "h200_nvl_tp4": "h200"}
_SYSTEMS = {"vllm": "vLLM", "vamp15": "VAMP-15", "vamp20": "VAMP-20", "vamp25": "VAMP-25"}
_COLUMNS = {"ttft_p99": "ttft_p99_s", "tpot": "tpot_ms"}


class Params(RunParameters):
    """`concurrency`: session counts to sweep; empty takes the paper's for each platform."""

    backends = ("sim", "cpu", "cuda", "recorded")

    platform: Platforms = "both"
    ratios: Ratios = PAPER_RATIOS
    concurrency: Concurrencies = ()

    def sweep(self, platform: str) -> tuple[int, ...]:
        return self.concurrency or (self.live.sweep if self.live else paper_sweep(platform))


def paper_sweep(platform: str) -> tuple[int, ...]:
    """The paper's session counts on that platform.

    Raises:
        ConfigError: the paper swept nothing like it.
    """
    if platform not in KEYS:
        raise ConfigError(f"the paper has no sweep on {platform}; give session counts with -p concurrency 16,20,24")
    return tuple(load_values()[f"sweep.{KEYS[platform]}.c"].value)


def spec(backend: str, platform: str, ratio_pct: float, concurrency: int, seed: int, scale: float = 1.0) -> RunSpec:
    """One cell and seed; section VI-D reads the same runs."""
    workload = {"kind": "inhouse", "concurrency": concurrency, "scale": scale}
    return make_spec(backend=backend, platform=platform, ratio_pct=ratio_pct, seed=seed, workload=workload)


def specs(p: Params) -> list[RunSpec]:
    """Every platform, ratio, concurrency and seed; of a recording those that it has."""
    every = [
        spec(p.backend, platform, ratio, c, seed, p.scale)
        for platform in platforms_of(p.platform)
        for ratio in p.ratios
        for c in p.sweep(platform)
        for seed in p.seeds
    ]
    return recorded_ones(every) if p.backend == "recorded" else every


def cells(specs: Sequence[RunSpec], runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row per platform, system and concurrency."""
    return group_rows(run_rows(specs, runs))


def thresholds(cells: pd.DataFrame) -> dict[str, float]:
    """Per platform, TTFT p99 above which a boundary counts as crossed, seconds."""
    lowest = cells.groupby("platform", sort=False)["ttft_p99_s"].min()
    return {str(name): COLLAPSE_FACTOR * float(s) for name, s in lowest.items()}


def boundary(cells: pd.DataFrame, platform: str, system: str, threshold_s: float) -> int | None:
    """First swept concurrency whose mean TTFT p99 is not at or below the threshold; None when there is none.

    A cell in which nothing finished has no p99 and counts as collapsed.
    """
    own = cells[(cells["platform"] == platform) & (cells["system"] == system)].sort_values("concurrency")
    crossed = own.loc[~(own["ttft_p99_s"] <= threshold_s), "concurrency"]
    return int(crossed.iloc[0]) if len(crossed) else None


def boundaries(cells: pd.DataFrame) -> pd.DataFrame:
    """One row per platform and system: ours and the paper's. `none`: not crossed in the sweep."""
    limits = thresholds(cells)
    rows = []
    for platform, system in cells[["platform", "system"]].drop_duplicates().itertuples(index=False):
        paper = load_values().get(f"fig9.{KEYS.get(platform)}.{_key(system)}.boundary")
        ours = boundary(cells, platform, system, limits[platform])
        rows.append(
            {
                "platform": platform,
                "system": system,
                "threshold, s": f"{limits[platform]:.2f}",
                "boundary": "none" if ours is None else str(ours),
                "paper": _printed(paper.value, paper.bound) if paper else "not printed",
            }
        )
    return pd.DataFrame(rows)


def _printed(value: Any, bound: str | None) -> str:
    return "none" if value is None else f"<= {value}" if bound == "upper" else str(value)


def _key(system: str) -> str:
    return system.lower().replace("-", "")


def table(cells: pd.DataFrame, column: str = "ttft_p99_s") -> pd.DataFrame:
    """Mean ± SD of one metric: a row per platform and system, a column per concurrency."""
    text = cells.assign(
        text=[with_sd(m, s) for m, s in zip(cells[column], cells[f"{column}_sd"].fillna(0.0), strict=True)]
    )
    wide = text.pivot(index=["platform", "system"], columns="concurrency", values="text").fillna("")
    order = list(dict.fromkeys(zip(cells["platform"], cells["system"], strict=True)))
    return wide.reindex(order)


def measured(p: Params, cells: pd.DataFrame) -> list[Measured]:
    """Values of Fig. 9 and of the text of section VI-C; none of a scaled workload."""
    if p.why_not:
        return []
    out = []
    for platform in platforms_of(p.platform):
        if platform in PAPER_PLATFORMS:  # one rank's shape on an H200 gives no H100 value
            out += _printed_cells(cells, platform)
            out += _h100(cells, platform) if KEYS[platform] == "h100" else _h200(cells, platform)
            if set(p.ratios) >= set(PAPER_RATIOS) and p.sweep(platform) == paper_sweep(platform):
                out += _boundary_values(cells, platform)
    return [m for m in out if _finite(m.value)]


def _finite(value: Any) -> bool:
    parts = value if isinstance(value, tuple) else (value,)
    return all(x is None or math.isfinite(x) for x in parts)


def _printed_cells(cells: pd.DataFrame, platform: str) -> list[Measured]:
    """Ids of the form fig9.<gpu>.<system>.c<sessions>.<metric>: one cell each."""
    out = []
    for value_id in matching_ids(f"fig9.{KEYS[platform]}.*"):
        parts = re.fullmatch(r"fig9\.\w+\.(\w+)\.c(\d+)\.(ttft_p99|tpot)", value_id)
        cell = find(cells, platform, _SYSTEMS[parts[1]], int(parts[2])) if parts else None
        if parts and cell:
            out.append(_of(value_id, platform, cell, _COLUMNS[parts[3]]))
    return out


def _of(value_id: str, platform: str, cell: dict[str, Any], column: str) -> Measured:
    sd = float(cell[f"{column}_sd"])
    return Measured(value_id, platform, float(cell[column]), sd if math.isfinite(sd) else None, int(cell["n"]))


def _span(value_id: str, platform: str, cells: pd.DataFrame, column: str) -> list[Measured]:
    """Lowest and highest mean of the cells, for a value that the paper prints as a band."""
    if cells.empty:
        return []
    low, high = float(cells[column].min()), float(cells[column].max())
    return [Measured(value_id, platform, (low, high), n=int(cells["n"].iloc[0]))]


def _boundary_values(cells: pd.DataFrame, platform: str) -> list[Measured]:
    limit = thresholds(cells)[platform]
    own = cells[cells["platform"] == platform]
    return [
        Measured(i, platform, boundary(own, platform, _SYSTEMS[i.split(".")[2]], limit), n=int(own["n"].iloc[0]))
        for i in matching_ids(f"fig9.{KEYS[platform]}.*.boundary")
    ]


def _h100(cells: pd.DataFrame, platform: str) -> list[Measured]:
    """Bands and comparisons of the H100 paragraph."""
    own = cells[cells["platform"] == platform]
    at28 = own[own["concurrency"] == 28]
    vamp28 = at28[at28["system"].isin([_SYSTEMS[s] for s in ("vamp15", "vamp20", "vamp25")])]
    out = _span("fig9.h100.vamp25.ttft_p99", platform, own[own["system"] == "VAMP-25"], "ttft_p99_s")
    out += _span("fig9.h100.c28.tps", platform, at28, "output_tokens_per_s")
    out += _span("fig9.h100.c28.vamp.hit_rate", platform, vamp28, "hit_rate_pct")
    if len(vamp28):
        mean, n = float(vamp28["n_preemptions"].mean()), int(vamp28["n"].iloc[0])
        out.append(Measured("fig9.h100.c28.vamp.preemptions", platform, mean, n=n))
    if base := find(own, platform, "vLLM", 28):
        out.append(_of("fig9.h100.c28.vllm.hit_rate", platform, base, "hit_rate_pct"))
        out.append(_of("fig9.h100.c28.vllm.preemptions", platform, base, "n_preemptions"))
    base, vamp = find(own, platform, "vLLM", 24), find(own, platform, "VAMP-15", 24)
    if base and vamp:
        change = (vamp["ttft_p99_s"] / base["ttft_p99_s"] - 1) * 100
        out.append(Measured("fig9.h100.vamp15.c24.vs_baseline", platform, float(change), n=int(base["n"])))
    return out


def _h200(cells: pd.DataFrame, platform: str) -> list[Measured]:
    """Band and factor of the H200 paragraph."""
    own = cells[cells["platform"] == platform]
    out = _span("fig9.h200.band", platform, own[own["concurrency"] <= 28], "ttft_p99_s")
    base, vamp = find(own, platform, "vLLM", 32), find(own, platform, "VAMP-20", 32)
    if base and vamp:
        factor = base["ttft_p99_s"] / vamp["ttft_p99_s"]
        out.append(Measured("fig9.h200.c32.factor", platform, float(factor), n=int(base["n"])))
    return out


def figure(p: Params, cells: pd.DataFrame) -> SavedFigure:
    titles = {name: find_platform(name, p.backend).title for name in platforms_of(p.platform)}
    limits = {titles[name]: s for name, s in thresholds(cells).items()}
    columns = ["platform", "system", "concurrency", "ttft_p99_s", "ttft_p99_s_sd"]
    data = cells[columns].rename(columns={"ttft_p99_s_sd": "sd"}).replace({"platform": titles})
    where = theme.origin(
        p.backend, scale=p.scale, note="; ".join(part for part in (f"n = {p.repeats}", p.note) if part)
    )
    fig = capacity_boundary(data, limits, heading="Fig. 9: steady-state TTFT p99 and capacity boundaries", where=where)
    return theme.save_figure(fig, data, notebook=NOTEBOOK, name="boundary", backend=p.backend)


def save(p: Params, cells: pd.DataFrame) -> results.Results:
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, cells),
        summaries=cells,
        why_not=p.why_not or "the sweep did not include it",
    )
