"""Platforms out of `vamp calibrate`'s profiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vamp.calibrate.coefficients import fitted
from vamp.calibrate.profile import Fitted, Model, Profile, load
from vamp.errors import ConfigError
from vamp.memory.geometry import GIB
from vamp.paths import data_dir
from vamp.sim.platforms import Inhouse, Platform, PlatformFile, StepTimeCoefficients, build_platform

_ONE_DEVICE = {"tp_bus_gbps": 1e6, "tp_shares_host_bus": False}
_INHOUSE = Inhouse(growth_tok=6000, output_tok=120)
"""ASSUMPTION: as h100_pcie_tp2; a workload, nothing that a host has."""


def calibrated_platform(path: Path) -> Platform:
    """The measured device with the measured model, its pool and step times.

    Raises:
        ConfigError: no profile, nothing to simulate in it, or its model is not under data/models.
    """
    profile = load(path)
    model, found = _usable(profile, path.name)
    if not (data_dir() / "models" / model.folder / "config.json").is_file():
        raise ConfigError(f"{path.name} was measured with model {model.folder!r}, which data/models does not have")
    raw = PlatformFile(
        name=path.stem,
        title=f"{profile.device}, calibrated",
        model=model.folder,
        gpus=1,
        tp=1,
        hbm_gib=profile.device_gib,
        kv_pool_gib=1.0,
        max_num_seqs=model.max_num_seqs,
        step_time=StepTimeCoefficients.model_validate(found.coefficients | _ONE_DEVICE),
        inhouse=_INHOUSE,
        provenance=_provenance(found, path.name) | {"growth_tok": "as h100_pcie_tp2", "output_tok": "as h100_pcie_tp2"},
    )
    built = build_platform(raw)
    return replace(built, base_blk=model.pool_blk, kv_pool_gib=model.pool_blk * built.kv.block_bytes / GIB)


def calibrated_file(raw: PlatformFile) -> PlatformFile:
    """A platform's file with the coefficients of the profile that it names; what that did not measure stays.

    Raises:
        ConfigError: see `calibrated_platform`.
    """
    name = raw.calibration or ""
    _, found = _usable(load(data_dir() / "platforms" / name), name)
    own = {key: value for key, value in found.coefficients.items() if key not in found.from_defaults}
    step_time = StepTimeCoefficients.model_validate(raw.step_time.model_dump() | own)
    measured = {key: why for key, why in _provenance(found, name).items() if key in own}
    return raw.model_copy(update={"step_time": step_time, "provenance": raw.provenance | measured})


def _usable(profile: Profile, name: str) -> tuple[Model, Fitted]:
    needed = {"step_ms", "decode_ms_per_seq", "prefill_us_per_tok"}
    if profile.fitted is None:  # measured where there is no scipy
        profile = fitted(profile)
    if profile.model is None or profile.fitted is None or needed - set(profile.fitted.coefficients):
        why = "; ".join(f"{part}: {reason}" for part, reason in profile.failures.items())
        raise ConfigError(
            f"{name} has no step times of a model ({why or 'none was timed'}); run vamp calibrate with --model"
        )
    return profile.model, profile.fitted


def _provenance(found: Fitted, name: str) -> dict[str, str]:
    measured = dict.fromkeys(found.coefficients, f"measured: {name}")
    return measured | found.from_defaults | dict.fromkeys(_ONE_DEVICE, "no tensor-parallel traffic on one device")
