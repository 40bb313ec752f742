"""One function per figure: tidy rows in, a Figure out. Saving is `vamp.report.theme.save_figure`."""

from vamp.report.figures.boundary import capacity_boundary
from vamp.report.figures.decisions import decision_scores
from vamp.report.figures.hbm import hbm_bars
from vamp.report.figures.replay import timeline, ttft_cdf
from vamp.report.figures.simcheck import ttft_pairs

__all__ = ["capacity_boundary", "decision_scores", "hbm_bars", "timeline", "ttft_cdf", "ttft_pairs"]
