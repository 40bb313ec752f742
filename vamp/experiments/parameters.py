"""Notebook parameters, checked once: what `papermill -p` injects is as free as a command line."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Self

import pandas as pd
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from vamp.config import RATIO_MAX_PCT, Frozen, explain
from vamp.errors import ConfigError
from vamp.experiments.ensure import check_backend
from vamp.experiments.spec import Backend
from vamp.live.platform import MODEL, LivePlatform, live_platform_names, load_live_platform
from vamp.sim.platforms import Platform, load_platform, platform_names

PAPER_PLATFORMS = ("h100_pcie_tp2", "h200_nvl_tp4")
BOTH = "both"
_ENGINES = {"sim": "simulated, vLLM's scheduler in virtual time"}
LIVE = f"live CPU server, {MODEL}: nothing of the paper's GPUs is measured"


def _known_backend(name: str) -> str:
    check_backend(name)
    return name


def find_platform(name: str) -> Platform | LivePlatform:
    """A profile under data/platforms, or a live platform under data/live.

    Raises:
        ConfigError: unknown name (the known ones are listed), or a field of the file is wrong.
    """
    return load_live_platform(name) if name in live_platform_names() else load_platform(name)


def platform_for(backend: str, name: str | None, default: str) -> str:
    """The platform to run on: the one named, else `default`, or the first live one for a live backend.

    Raises:
        ConfigError: that backend does not run on it.
    """
    own = live_platform_names() if backend == "cpu" else [*platform_names(), BOTH]
    if not name:
        return own[0] if backend == "cpu" else default
    if name not in own:
        find_platform(name)  # an unknown name is the better complaint
        raise ConfigError(f"platform {name!r} is not for backend {backend!r}; it has: {', '.join(own)}")
    return name


def _known_platform(name: str) -> str:
    if name:
        find_platform(name)
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
    """What every notebook takes: the engine. `backends`: those that it can use."""

    backends: ClassVar[tuple[str, ...]] = ("sim",)

    backend: AnyBackend = "sim"

    def title(self, what: str) -> str:
        """`what`, and where its numbers come from, with the scale of a live server."""
        if self.backend == "cpu":
            scale = load_live_platform(str(getattr(self, "platform", ""))).scale
            return f"{what}: live CPU server, {MODEL}; scaled down: {scale}"
        return f"{what}: {_ENGINES.get(self.backend, self.backend)}"

    @model_validator(mode="before")
    @classmethod
    def _fitting_platform(cls, given: dict[str, Any]) -> dict[str, Any]:
        """A live backend has platforms of its own: it replaces the notebook's default platform, and refuses others."""
        backend, field = given.get("backend", "sim"), cls.model_fields.get("platform")
        if field is None or backend == "sim":
            return given
        name = given.get("platform", field.default)
        return given | {"platform": platform_for(str(backend), None if name == field.default else name, field.default)}

    @model_validator(mode="after")
    def _fitting_backend(self) -> Self:
        if self.backend not in self.backends:
            raise ConfigError(
                f"this notebook does not run on backend {self.backend!r}, only on {', '.join(self.backends)}"
            )
        name = getattr(self, "platform", None)
        if name is not None:
            platform_for(self.backend, name, name)
        return self

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


class OneRunParameters(Parameters):
    """What every notebook that runs a workload takes.

    Attributes:
        seed: of the run, or of the first one.
        scale: shrinks the workload; below 1 nothing is compared with the paper.
        jobs: worker processes; 0 takes what the machine allows.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    jobs: Annotated[int, Field(ge=0)] = 0

    @property
    def n_jobs(self) -> int | None:
        """As `ensure` takes it."""
        return self.jobs or None

    @property
    def why_not(self) -> str:
        """Why nothing of a run with these parameters is compared with the paper; "" when it is."""
        if self.backend == "cpu":
            return LIVE
        return f"scale {self.scale:g}: not the paper's workload" if self.scale < 1 else ""


class RunParameters(OneRunParameters):
    """`repeats`: runs use the seeds seed, seed + 1, ... seed + repeats - 1."""

    repeats: Repeats = 1

    @property
    def seeds(self) -> list[int]:
        return list(range(self.seed, self.seed + self.repeats))


def provenance(platforms: tuple[str, ...]) -> pd.DataFrame:
    """Each coefficient of the platforms, its value, and where it is from: fitted, measured or assumed.

    A live platform has no coefficients; what it declares is its scale.
    """
    rows = []
    for name in platforms:
        pl = find_platform(name)
        if isinstance(pl, LivePlatform):
            rows += [(name, key, str(value), "declared: the scale") for key, value in pl.model_dump().items()]
            continue
        values = pl.step_time.model_dump() | {
            "growth_tok": pl.inhouse_growth_tok,
            "output_tok": pl.inhouse_output_tok,
        }
        rows += [(name, key, values.get(key, ""), origin) for key, origin in pl.provenance.items()]
    return pd.DataFrame(rows, columns=["platform", "coefficient", "value", "provenance"])


def platforms_of(name: str) -> tuple[str, ...]:
    """The paper's two for "both", else the one named."""
    return PAPER_PLATFORMS if name == BOTH else (name,)
