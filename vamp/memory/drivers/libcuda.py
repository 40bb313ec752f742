"""The CUDA driver's calls, with their status checked."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver  # type: ignore[attr-defined]  # a compiled module without stubs

from vamp.errors import DriverError

cu: Any = driver


def checked(call: str, result: tuple[Any, ...], value: str = "") -> Any:
    """What a call of the CUDA driver returned besides its status: nothing, one value, or a tuple of several.

    Raises:
        DriverError: the status is not success.
    """
    error = result[0]
    if error != cu.CUresult.CUDA_SUCCESS:
        _, text = cu.cuGetErrorString(error)
        problem = text.decode() if isinstance(text, bytes) else str(text)
        limit, todo = f"the driver's ({error.name})", "see the device's memory with nvidia-smi"
        raise DriverError.of(call, problem, value=value or "no size", limit=limit, todo=todo)
    return result[1] if len(result) == 2 else result[1:] or None
