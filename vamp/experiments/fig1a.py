"""Fig. 1(a) and section III-A: what weights leave of a GPU's memory, for dense models and for a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from vamp.experiments.parameters import OnePlatform, Parameters
from vamp.memory.geometry import GIB
from vamp.report import results, theme
from vamp.report.figures import hbm_bars
from vamp.report.tables import number
from vamp.report.theme import SavedFigure
from vamp.report.values import paper_value
from vamp.report.verdicts import Measured
from vamp.sim.platforms import Platform, load_platform

NOTEBOOK = "04_fig1a_hbm_breakdown"
COVERS = ("motivation.llama*", "motivation.2xh100_hbm", "motivation.mixtral.*", "motivation.deepseek*",
          "motivation.single_turn_context", "bg.kv_10k_request.*", "intro.*")  # fmt: skip
BF16_BYTES = 2
KV_REQUEST_TOK = 10_000  # section II-A: the example request


@dataclass(frozen=True, slots=True)
class DenseModel:
    """Shape of a dense decoder with gated feed-forward layers and grouped-query attention, as its published
    config.json has it; input and output embeddings are separate."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @property
    def n_params(self) -> int:
        """Embeddings, projections, feed-forward matrices and norms."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * layer + 2 * self.vocab * self.hidden + self.hidden

    @property
    def weights_gib(self) -> float:
        """In BF16."""
        return self.n_params * BF16_BYTES / GIB

    def kv_gib(self, n_tok: int) -> float:
        """Keys and values of `n_tok` tokens in BF16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BF16_BYTES * n_tok / GIB


LLAMA_8B = DenseModel("Llama-3.1-8B", 32, 4096, 14_336, 32, 8, 128, 128_256)
LLAMA_70B = DenseModel("Llama-3.1-70B", 80, 8192, 28_672, 64, 8, 128, 128_256)
QWEN3_8B = DenseModel("Qwen3-8B", 36, 4096, 12_288, 32, 8, 128, 151_936)


class Params(Parameters):
    platform: OnePlatform = "h100_pcie_tp2"


def load(p: Params) -> Platform:
    return load_platform(p.platform)


def shares(pl: Platform) -> dict[str, tuple[float, float]]:
    """Per model: weights (for the MoE model its experts), and the memory of the GPUs that hold them, GiB."""
    return {
        LLAMA_8B.name: (LLAMA_8B.weights_gib, pl.hbm_gib),
        LLAMA_70B.name: (LLAMA_70B.weights_gib, 2 * pl.hbm_gib),
        "Qwen3-Next-80B experts": (pl.tp * pl.experts.weights_bytes / GIB, pl.tp * pl.hbm_gib),
    }


def table(pl: Platform) -> pd.DataFrame:
    """Weights against memory; the paper's values beside ours."""
    keys = ("motivation.llama31_8b", "motivation.llama31_70b", None)
    rows = []
    for key, (model, (weights, hbm)) in zip(keys, shares(pl).items(), strict=True):
        row = {"model": model, "weights, GiB": number(weights), "of, GiB": number(hbm)}
        paper = [number(paper_value(f"{key}.{c}").value) if key else "" for c in ("weights", "share")]
        row |= {"paper, GiB": paper[0], "share, %": number(weights / hbm * 100), "paper, %": paper[1]}
        rows.append(row)
    return pd.DataFrame(rows)


def measured(p: Params, pl: Platform) -> list[Measured]:
    """Closed-form values. Shares are of the paper's H100s; another platform has none."""
    out = [Measured("bg.kv_10k_request.size", p.platform, QWEN3_8B.kv_gib(KV_REQUEST_TOK))]
    for key, model in (("llama31_8b", LLAMA_8B), ("llama31_70b", LLAMA_70B)):
        out.append(Measured(f"motivation.{key}.weights", p.platform, model.weights_gib))
        if p.platform == "h100_pcie_tp2":
            weights, hbm = shares(pl)[model.name]
            out.append(Measured(f"motivation.{key}.share", p.platform, weights / hbm * 100))
    return out


def parts(pl: Platform) -> pd.DataFrame:
    """Columns bar, part, gib, all per GPU: the dense models' weights and what is left, then Table I's GPU."""
    rows = []
    for model, gpus in ((LLAMA_8B, 1), (LLAMA_70B, 2)):
        bar, weights = f"{model.name}, {gpus} GPU{'s' * (gpus > 1)}", model.weights_gib / gpus
        rows += [(bar, "dense weights", weights), (bar, "left for KV cache and the rest", pl.hbm_gib - weights)]
    experts, bar = pl.experts.weights_bytes / GIB, f"Qwen3-Next-80B, {pl.tp} GPUs"
    rows += [
        (bar, "expert weights", experts),
        (bar, "KV-cache pool at start", pl.kv_pool_gib),
        (bar, "other weights, activations, reserve", pl.hbm_gib - experts - pl.kv_pool_gib),
    ]
    return pd.DataFrame(rows, columns=["bar", "part", "gib"])


def figure(p: Params, pl: Platform) -> SavedFigure:
    data = parts(pl)
    where = "closed form; the pool at start is an input"
    fig = hbm_bars(data, heading=f"Fig. 1(a): memory of one GPU, {pl.title}", where=where)
    return theme.save_figure(fig, data, notebook=NOTEBOOK, name="breakdown", backend=p.backend)


def save(p: Params, pl: Platform) -> results.Results:
    return p.save(
        NOTEBOOK,
        covers=COVERS,
        measured=measured(p, pl),
        why_not=f"a share of an H100; {p.platform} was asked for",
    )
