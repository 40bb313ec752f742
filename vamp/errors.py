"""The one error tree. Every message says what, the value seen, the limit, and what to do.

VampError
├── ConfigError       a setting is unknown, malformed or out of range
├── TraceError        a workload file cannot be used (file, line and field are named)
├── GeometryError     model, page size and pool cannot be laid out together
├── CapacityError     a request or a plan can never fit
├── VersionError      another vLLM than the supported one
├── InvariantError    accounting went wrong (a defect: please report it)
├── DriverError       a call to the memory driver failed; nothing was changed by it
│   ├── AddressError      an address or size that the call cannot take (a defect of the caller)
│   └── OutOfPagesError   no physical memory is left
├── RemapError        pages could not change hands; all of them are where they were before
├── FatalRemapError   nor could they be put back; the rank must stop
├── RunError          an experiment did not finish
└── ClaimError        a value or claim id is unknown
"""

from __future__ import annotations

from typing import Self


class VampError(Exception):
    """Base of all errors that vamp raises on purpose; the command line prints them in one line."""


class ConfigError(VampError):
    """A setting is unknown, malformed or out of range."""


class TraceError(VampError):
    """A workload file cannot be used. The message names file, line and field."""

    def __init__(self, message: str, *, file: str = "", line: int | None = None, field: str = "") -> None:
        where = ":".join(str(part) for part in (file, line) if part not in ("", None))
        what = f" field {field!r}:" if field else ""
        super().__init__(f"{where}:{what} {message}".lstrip(": ").strip())
        self.file, self.line, self.field = file, line, field


class GeometryError(VampError):
    """Model, page size and pool cannot be laid out together."""


class CapacityError(VampError):
    """A request or a plan can never fit, whatever is evicted or offloaded."""


class VersionError(VampError):
    """Another vLLM than the supported one is installed."""


class InvariantError(VampError):
    """Block or page accounting is inconsistent. Always a defect."""


class DriverError(VampError):
    """A call to the memory driver failed and changed nothing."""

    @classmethod
    def of(cls, call: str, problem: str, *, value: object, limit: object, todo: str) -> Self:
        """The one line: which call, what is wrong, the value seen, its limit, what to do."""
        return cls(f"{call}: {problem}: {value}; the limit is {limit}; {todo}")


class AddressError(DriverError):
    """An address or a size is misaligned, unknown, taken, or in use. A defect of the caller."""


class OutOfPagesError(DriverError):
    """No physical memory is left for new pages."""


class RemapError(VampError):
    """Pages could not change hands. Every page is where it was before."""


class FatalRemapError(VampError):
    """A remap failed and could not be undone either; the message has the state. Stop this rank."""


class RunError(VampError):
    """An experiment did not finish."""


class ClaimError(VampError):
    """A value id or claim id is unknown."""
