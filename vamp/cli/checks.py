"""Values from the command line, checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from vamp.config import RATIO_MAX_PCT
from vamp.errors import ConfigError
from vamp.experiments.ensure import check_backend
from vamp.experiments.parameters import find_platform


def existing(trace: Path) -> str:
    """An absolute path, since notebooks and workers may run in another folder.

    Raises:
        ConfigError: it does not exist.
    """
    if not trace.exists():
        raise ConfigError(f"trace {trace} does not exist; give a file or a folder of traces")
    return str(trace.resolve())


def ratio_pct(text: str) -> float:
    """`--ratio`.

    Raises:
        ConfigError: no number from 0 to 50.
    """
    if text == "auto":
        raise ConfigError(f"--ratio auto is not in this version; give a number from 0 to {RATIO_MAX_PCT:g}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= RATIO_MAX_PCT:
        raise ConfigError(f"ratio is {text}; it must be a number from 0 to {RATIO_MAX_PCT:g} (percent)")
    return value


def concurrencies(texts: list[str]) -> list[int]:
    """`--concurrency`, repeated or as a comma list, in the order given.

    Raises:
        ConfigError: not whole numbers of at least 1.
    """
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    for part in parts:
        if not part.isdecimal() or int(part) < 1:
            raise ConfigError(f"--concurrency is {part!r}; it must be a whole number of at least 1")
    return list(dict.fromkeys(map(int, parts)))


def check_parameters(given: Mapping[str, str]) -> None:
    """Notebook parameters that have a meaning everywhere.

    Raises:
        ConfigError: unknown backend or platform, ratio out of range.
    """
    if "backend" in given:
        check_backend(given["backend"])
    if "platform" in given:
        find_platform(given["platform"])
    if "ratio" in given:
        ratio_pct(given["ratio"])
