"""Profiles: YAML files under data/, one per platform, each checked by a pydantic model."""

from __future__ import annotations

from typing import TypeVar

import yaml
from pydantic import ValidationError

from vamp.config import Frozen, explain
from vamp.errors import ConfigError
from vamp.paths import data_dir

M = TypeVar("M", bound=Frozen)


def profile_names(folder: str) -> list[str]:
    """Of the profiles in data/`folder`."""
    return sorted(path.stem for path in (data_dir() / folder).glob("*.yaml"))


def load_profile(folder: str, name: str, model: type[M], what: str) -> M:
    """The profile of that name.

    Args:
        what: what a profile of this folder is called.

    Raises:
        ConfigError: unknown name (the known ones are listed), or a field of the file is wrong.
    """
    known = profile_names(folder)
    if name not in known:
        raise ConfigError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    path = data_dir() / folder / f"{name}.yaml"
    try:
        return model.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as err:
        detail = explain(err, path.name) if isinstance(err, ValidationError) else str(err).replace("\n", " ")
        raise ConfigError(f"data/{folder}/{detail}") from None
