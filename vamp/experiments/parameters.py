"""Notebook parameters, checked once: what `papermill -p` injects is as free as a command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import pandas as pd
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from vamp.config import RATIO_MAX_PCT, Frozen, explain
from vamp.errors import ConfigError
from vamp.experiments.ensure import check_backend
from vamp.experiments.recording import origin_of
from vamp.experiments.spec import Backend
from vamp.live.platform import LIVE_BACKENDS, LivePlatform, live_platform_names, load_live_platform
from vamp.report import results
from vamp.report.verdicts import Measured
from vamp.sim.platforms import Platform, is_calibration, load_platform, platform_names

PAPER_PLATFORMS = ("h100_pcie_tp2", "h200_nvl_tp4")
BOTH = "both"
_ENGINES = {"sim": "simulated, vLLM's scheduler in virtual time"}
RECORDED_PLATFORM = "h200_tp2_rank"
NOT_THE_PAPERS = "nothing of the paper's GPUs is measured"


def _known_backend(name: str) -> str:
    check_backend(name)
    return name


def find_platform(name: str, backend: str = "") -> Platform | LivePlatform:
    """A profile under data/platforms, or a live platform under data/live: the backend's, or whichever has that name.

    Raises:
        ConfigError: unknown name (the known ones are listed), or a field of the file is wrong.
    """
    live = backend in (*LIVE_BACKENDS, "recorded") or name not in platform_names()
    return load_live_platform(name) if live and name in live_platform_names() else load_platform(name)


def platform_for(backend: str, name: str | None, default: str) -> str:
    """The platform to run on: the one named, else `default`, or the first of the backend's own.

    Raises:
        ConfigError: that backend does not run on it.
    """
    if backend == "sim" and name and is_calibration(name):
        load_platform(name)
        return str(Path(name).resolve())  # workers may run in another folder
    own = platforms_for(backend)
    if not name:
        return default if default in own and backend != "recorded" else own[0]
    if name not in own:
        find_platform(name)  # an unknown name is the better complaint
        raise ConfigError(f"platform {name!r} is not for backend {backend!r}; it has: {', '.join(own)}")
    return name


def platforms_for(backend: str) -> list[str]:
    """The backend's own; of the recorded ones the first is what was recorded here."""
    if backend in LIVE_BACKENDS:
        return live_platform_names(backend)
    if backend == "recorded":
        return sorted(live_platform_names("cuda"), key=lambda name: name != RECORDED_PLATFORM)
    return [*platform_names(), BOTH]


def _known_platform(name: str) -> str:
    if name:
        find_platform(name)
    return name


def _known_platforms(name: str) -> str:
    return name if name == BOTH else _known_platform(name)


def from_text(given: object) -> object:
    """papermill's command line passes a list as text: `-p ratios "[0, 15]"`, or without the brackets."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(f"[{given.strip().strip('[]')}]")
    except ValueError:
        return given


def unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sorted, each value once."""
    return tuple(sorted(set(values)))


AnyBackend = Annotated[Backend, AfterValidator(_known_backend)]
OnePlatform = Annotated[str, AfterValidator(_known_platform)]
Platforms = Annotated[str, AfterValidator(_known_platforms)]
Repeats = Annotated[int, Field(ge=1, le=100)]
Ratio = Annotated[float, Field(gt=0, le=RATIO_MAX_PCT)]
Ratios = Annotated[
    tuple[Annotated[float, Field(ge=0, le=RATIO_MAX_PCT)], ...],
    BeforeValidator(from_text),
    Field(min_length=1),
    AfterValidator(unique),
]
Concurrencies = Annotated[
    tuple[Annotated[int, Field(ge=1, le=4096)], ...], BeforeValidator(from_text), AfterValidator(unique)
]


class Parameters(Frozen):
    """What every notebook takes: the engine. `backends`: those that it can use."""

    backends: ClassVar[tuple[str, ...]] = ("sim",)

    backend: AnyBackend = "sim"

    def title(self, what: str) -> str:
        """`what`, and where its numbers come from, with the scale of a live server."""
        if self.live is None:
            return f"{what}: {_ENGINES.get(self.backend, self.backend)}"
        parts = (self.live.label, self.recorded, f"scaled down: {self.live.scale}" if self.live.scale else "")
        return f"{what}: {'; '.join(part for part in parts if part)}"

    @property
    def live(self) -> LivePlatform | None:
        """The platform of a live or a recorded run; None for the simulator."""
        if self.backend == "sim":
            return None
        return load_live_platform(str(getattr(self, "platform", "")))

    @property
    def recorded(self) -> str:
        """On what and when, of recorded runs; "" of others."""
        return origin_of(str(getattr(self, "platform", ""))) if self.backend == "recorded" else ""

    @property
    def note(self) -> str:
        """For figures: what served, of live and recorded runs."""
        return "; ".join(part for part in (self.live.label, self.recorded) if part) if self.live else ""

    @property
    def uncompared(self) -> str:
        """Why no paper verdict is given on this platform, whatever the parameters; "" when it can be."""
        if self.live is None or self.live.comparable:
            return ""
        return f"{self.note}: {NOT_THE_PAPERS}"

    @property
    def seeds(self) -> list[int]:
        """Of the runs; none where nothing is run."""
        return []

    def save(
        self,
        notebook: str,
        *,
        covers: Iterable[str] = (),
        measured: Sequence[Measured] = (),
        summaries: pd.DataFrame | None = None,
        why_not: str = "",
    ) -> results.Results:
        """Write the results file of a notebook that ran with these parameters: see `results.save`."""
        return results.save(
            notebook,
            backend=self.backend,
            parameters=self.model_dump(),
            covers=covers,
            measured=measured,
            seeds=self.seeds,
            summaries=summaries,
            why_not=why_not,
        )

    @model_validator(mode="before")
    @classmethod
    def _fitting_platform(cls, given: dict[str, Any]) -> dict[str, Any]:
        """A live backend has platforms of its own: it replaces the notebook's default platform, and refuses others.

        Recordings are of one run each: the default number of repeats becomes one.
        """
        backend, field = given.get("backend", "sim"), cls.model_fields.get("platform")
        if field is None or backend == "sim":
            return given
        repeats = cls.model_fields.get("repeats")
        if backend == "recorded" and repeats and given.get("repeats", repeats.default) == repeats.default:
            given = given | {"repeats": 1}
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
    def seeds(self) -> list[int]:
        return [self.seed]

    @property
    def n_jobs(self) -> int | None:
        """As `ensure` takes it."""
        return self.jobs or None

    @property
    def why_not(self) -> str:
        """Why nothing of a run with these parameters is compared with the paper; "" when it is."""
        if self.uncompared:
            return self.uncompared
        return f"scale {self.scale:g}: not the paper's workload" if self.scale < 1 else ""


class RunParameters(OneRunParameters):
    """`repeats`: runs use the seeds seed, seed + 1, ... seed + repeats - 1."""

    repeats: Repeats = 1

    @property
    def seeds(self) -> list[int]:
        return list(range(self.seed, self.seed + self.repeats))


def provenance(platforms: tuple[str, ...], backend: str = "") -> pd.DataFrame:
    """Each coefficient of the platforms, its value, and where it is from: fitted, measured or assumed.

    A live platform has no coefficients; what it declares is its scale.
    """
    rows = []
    for name in platforms:
        pl = find_platform(name, backend)
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
