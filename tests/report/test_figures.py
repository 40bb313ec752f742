"""Figures render from made-up rows (test data, nothing measured)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from vamp.report import figures, theme
from vamp.report.figures.hbm import PARTS

RNG = np.random.default_rng(0)
WHERE = "test data, nothing measured"
T_S = np.linspace(0, 3000, 50)


def hbm() -> tuple[pd.DataFrame, Figure]:
    rows = [(bar, part, 10.0 + i) for bar in ("a", "b") for i, part in enumerate(PARTS)]
    data = pd.DataFrame(rows, columns=["bar", "part", "gib"])
    return data, figures.hbm_bars(data, heading="bars", where=WHERE)


def cdf() -> tuple[pd.DataFrame, Figure]:
    data = pd.DataFrame({"system": ["vLLM", "VAMP-15"] * 100, "ttft_s": RNG.lognormal(size=200)})
    return data, figures.ttft_cdf(data, heading="cdf", where=WHERE)


def timeline() -> tuple[pd.DataFrame, Figure]:
    parts = [
        pd.DataFrame({"system": s, "t_s": T_S, "pool_gib": 8.0, "hit_pct": np.nan, "preemptions": T_S})
        for s in ("vLLM", "VAMP-15")
    ]
    data = pd.concat(parts)
    return data, figures.timeline(data, (300, 2000), heading="timeline", where=WHERE)


def boundary() -> tuple[pd.DataFrame, Figure]:
    rows = [(pl, s, c, c / 2, np.nan) for pl in "ab" for s in theme.SYSTEMS for c in (16, 20, 24)]
    data = pd.DataFrame(rows, columns=["platform", "system", "concurrency", "ttft_p99_s", "sd"])
    return data, figures.capacity_boundary(data, {"a": 9.0, "b": 9.0}, heading="boundary", where=WHERE)


def decisions() -> tuple[pd.DataFrame, Figure]:
    data = pd.DataFrame({"C_c_ms": RNG.lognormal(size=40), "C_e_ms": RNG.lognormal(size=40)})
    data["choice"] = np.where(data["C_c_ms"] < data["C_e_ms"], "evict", "offload")
    pool = pd.DataFrame({"run": "c = 32", "t_s": T_S, "pool_gib": 87 + T_S / 1000})
    return data, figures.decision_scores(data, pool, heading="decisions", where=WHERE)


def closed_loop() -> tuple[pd.DataFrame, Figure]:
    rows = [(s, h, 0.9, 2.0, 30, 1.0 + h) for s in ("vLLM", "VAMP-15") for h in np.arange(0.25, 3, 0.5)]
    columns = ["system", "middle_h", "kv_util", "waiting", "preemptions", "ttft_mean_s"]
    data = pd.DataFrame(rows, columns=columns)
    return data, figures.closed_loop_bins(data, heading="closed loop", where=WHERE)


def tradeoff() -> tuple[pd.DataFrame, Figure]:
    values = ("ttft_p99_s", "tpot_ms", "output_tokens_per_s", "completed_pct")
    rows = [
        {"system": s, "sessions": n} | dict.fromkeys(values, 3.0) | {f"{v}_sd": np.nan for v in values}
        for s in ("vLLM", "VAMP-15")
        for n in (64, 128)
    ]
    data = pd.DataFrame(rows)
    return data, figures.load_tradeoff(data, heading="tradeoff", where=WHERE)


def layers() -> tuple[pd.DataFrame, Figure]:
    rows = [(r, i, 300.0 + i, 400 + i) for r in ("uniform routing", "skewed routing") for i in range(48)]
    data = pd.DataFrame(rows, columns=["routing", "layer", "mean", "largest"])
    return data, figures.layer_union(data, 512, heading="layers", where=WHERE)


def hiding() -> tuple[pd.DataFrame, Figure]:
    rows = [("a", "decoding", n, r, 1.0 + n / 50, r / 3) for r in (10.0, 15.0) for n in (1, 8, 64)]
    columns = ["title", "step", "n_tok", "ratio_pct", "compute_ms", "copy_ms"]
    data = pd.DataFrame(rows, columns=columns)
    return data, figures.copy_hiding(data, heading="hiding", where=WHERE)


def steps() -> tuple[pd.DataFrame, Figure]:
    data = pd.DataFrame({c: RNG.lognormal(size=30) for c in ("C_c_ms", "C_e_ms", "C_p_ms", "C_b_ms")})
    data = data.assign(number=range(30), gap_blk=4, pool_gib=87.0, choice=["evict", "offload", "none"] * 10)
    return data, figures.decision_steps(data, heading="steps", where=WHERE)


MADE = [hbm, cdf, timeline, boundary, decisions, closed_loop, tradeoff, layers, hiding, steps]


@pytest.mark.parametrize("make", MADE)
def test_a_figure_is_written_as_svg_png_and_csv(
    checkout: Path, make: Callable[[], tuple[pd.DataFrame, Figure]]
) -> None:
    data, fig = make()
    saved = theme.save_figure(fig, data, notebook="t", name=make.__name__, backend="sim")
    pixels = matplotlib.image.imread(saved.png)
    assert pixels.shape[0] > 200 and pixels.shape[1] > 400
    assert pixels[..., :3].std() > 0.02  # something is drawn
    drawn = list(ET.parse(saved.svg).iter("{http://www.w3.org/2000/svg}path"))
    assert len(drawn) > 20
    assert len(pd.read_csv(saved.csv)) == len(data)
    assert saved._repr_png_() == saved.png.read_bytes()


def test_an_empty_figure_would_be_noticed(checkout: Path) -> None:
    """Negative control of the test above."""
    saved = theme.save_figure(Figure(), pd.DataFrame(), notebook="t", name="empty", backend="sim")
    assert matplotlib.image.imread(saved.png)[..., :3].std() < 0.02


def test_no_decision_with_both_plans() -> None:
    none = pd.DataFrame(columns=["C_c_ms", "C_e_ms", "choice"])
    pool = pd.DataFrame({"run": "c = 16", "t_s": T_S, "pool_gib": 87.0})
    fig = figures.decision_scores(none, pool, heading="decisions", where=WHERE)
    assert "no decision" in fig.axes[0].texts[0].get_text()


def test_zero_scores_stay_on_the_logarithmic_axes() -> None:
    zero = pd.DataFrame({"C_c_ms": [0.0, 2.0], "C_e_ms": [1.0, 1.0], "choice": ["evict", "offload"]})
    pool = pd.DataFrame({"run": "c = 32", "t_s": T_S, "pool_gib": 87.0})
    ax = figures.decision_scores(zero, pool, heading="decisions", where=WHERE).axes[0]
    assert min(ax.collections[0].get_offsets()[:, 0]) > 0  # type: ignore[index]


def test_simulated_figures_say_so() -> None:
    assert theme.origin("sim").startswith("simulated")
    assert "simulated" not in theme.origin("cuda")
    assert "stand-in" in theme.origin("sim", stand_in=True)
    assert "scale 0.5" in theme.origin("sim", scale=0.5)


def test_systems_keep_their_colour_and_order() -> None:
    assert theme.in_order(pd.Series(["VAMP-20", "VAMP-7.5", "vLLM"])) == ["vLLM", "VAMP-7.5", "VAMP-20"]
    assert theme.color("VAMP-15") == "#0072B2"
    assert theme.color("VAMP-7.5") == theme.OTHER_COLOR
    assert len(set(theme.COLORS.values())) == len(theme.COLORS)
