"""Notebook parameters, checked once: what `papermill -p` injects is as free as a command line."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

import pandas as pd
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from vamp.config import RATIO_MAX_PCT, Frozen, explain
from vamp.errors import ConfigError
from vamp.experiments.ensure import check_backend
from vamp.experiments.spec import Backend
from vamp.sim.platforms import load_platform

PAPER_PLATFORMS = ("h100_pcie_tp2", "h200_nvl_tp4")
BOTH = "both"


def _known_backend(name: str) -> str:
    check_backend(name)
    return name


def _known_platform(name: str) -> str:
    load_platform(name)
    return name


def _known_platforms(name: str) -> str:
    return name if name == BOTH else _known_platform(name)


def _from_text(given: object) -> object:
    """papermill's command line passes a list as text: `-p ratios "[0, 15]"`, or without the brackets."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(f"[{given.strip().strip('[]')}]")
    except ValueError:
        return given


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


AnyBackend = Annotated[Backend, AfterValidator(_known_backend)]
OnePlatform = Annotated[str, AfterValidator(_known_platform)]
Platforms = Annotated[str, AfterValidator(_known_platforms)]
Repeats = Annotated[int, Field(ge=1, le=100)]
Ratio = Annotated[float, Field(gt=0, le=RATIO_MAX_PCT)]
Ratios = Annotated[
    tuple[Annotated[float, Field(ge=0, le=RATIO_MAX_PCT)], ...],
    BeforeValidator(_from_text),
    Field(min_length=1),
    AfterValidator(_unique),
]
Concurrencies = Annotated[
    tuple[Annotated[int, Field(ge=1, le=4096)], ...], BeforeValidator(_from_text), AfterValidator(_unique)
]


class Parameters(Frozen):
    """What every notebook takes: the engine."""

    backend: AnyBackend = "sim"

    @classmethod
    def check(cls, **given: Any) -> Self:
        """Checked parameters.

        Raises:
            ConfigError: names each one that is unknown or wrong, its value and the limit.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as err:
            raise ConfigError(f"{explain(err, 'parameter')}; known: {', '.join(cls.model_fields)}") from None


class RunParameters(Parameters):
    """What every notebook that runs a workload takes.

    Attributes:
        seed, repeats: runs use the seeds seed, seed + 1, ... seed + repeats - 1.
        scale: shrinks the workload; below 1 nothing is compared with the paper.
        jobs: worker processes; 0 takes what the machine allows.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    repeats: Repeats = 1
    scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    jobs: Annotated[int, Field(ge=0)] = 0

    @property
    def seeds(self) -> list[int]:
        return list(range(self.seed, self.seed + self.repeats))

    @property
    def n_jobs(self) -> int | None:
        """As `ensure` takes it."""
        return self.jobs or None

    @property
    def why_not(self) -> str:
        """Why nothing of a run with these parameters is compared with the paper; "" when it is."""
        return f"scale {self.scale:g}: not the paper's workload" if self.scale < 1 else ""


def provenance(platforms: tuple[str, ...]) -> pd.DataFrame:
    """Each coefficient of the platforms, its value, and where it is from: fitted, measured or assumed."""
    rows = []
    for name in platforms:
        pl = load_platform(name)
        values = pl.step_time.model_dump() | {
            "growth_tok": pl.inhouse_growth_tok,
            "output_tok": pl.inhouse_output_tok,
        }
        rows += [(name, key, values.get(key, ""), origin) for key, origin in pl.provenance.items()]
    return pd.DataFrame(rows, columns=["platform", "coefficient", "value", "provenance"])


def platforms_of(name: str) -> tuple[str, ...]:
    """The paper's two for "both", else the one named."""
    return PAPER_PLATFORMS if name == BOTH else (name,)
