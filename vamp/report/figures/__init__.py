"""One function per figure: tidy rows in, a Figure out. Saving is `vamp.report.theme.save_figure`."""

from vamp.report.figures.boundary import capacity_boundary
from vamp.report.figures.closed_loop import closed_loop_bins
from vamp.report.figures.decisions import decision_scores, decision_steps
from vamp.report.figures.hbm import hbm_bars
from vamp.report.figures.layers import copy_hiding, layer_union
from vamp.report.figures.ratios import ratio_tradeoff, slo_grid
from vamp.report.figures.replay import timeline, ttft_cdf
from vamp.report.figures.reuse import prefix_cliff, session_strips
from vamp.report.figures.simcheck import ttft_pairs
from vamp.report.figures.tradeoff import load_tradeoff
from vamp.report.figures.turns import median_by_turn, ttft_by_bin

__all__ = [
    "capacity_boundary",
    "closed_loop_bins",
    "copy_hiding",
    "decision_scores",
    "decision_steps",
    "hbm_bars",
    "layer_union",
    "load_tradeoff",
    "median_by_turn",
    "prefix_cliff",
    "ratio_tradeoff",
    "session_strips",
    "slo_grid",
    "timeline",
    "ttft_by_bin",
    "ttft_cdf",
    "ttft_pairs",
]
