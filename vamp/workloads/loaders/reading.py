"""Reading recordings line by line, in bounded memory, with errors that say file, line and field."""

from __future__ import annotations

import gzip
import reprlib
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vamp.errors import TraceError
from vamp.workloads.tokens import MAX_TOK
from vamp.workloads.trace import Session

MAX_LINE_BYTES = 64 * 2**20
MAX_DOCUMENT_BYTES = 256 * 2**20  # a file that is one JSON document has to be held at once
HEAD_BYTES = 64 * 2**10
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class Line(BaseModel):
    """Base of the records. Types are strict: no bool for an int, no text for a number."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


LengthTok = Annotated[int, Field(ge=1, le=MAX_TOK)]
Timestamp = Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]  # beyond: no clock's unit
BlockId = Annotated[int, Field(ge=0, lt=2**63)]

AnyModel = TypeVar("AnyModel", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Source:
    """One file to load.

    Attributes:
        name: path below the folder that was asked for; begins every session id.
        salt: its number among the loaded files.
        limit: turns to read at most; None reads all.
    """

    path: Path
    name: str
    salt: int
    limit: int | None

    def error(self, message: str, *, line: int | None = None, field: str = "") -> TraceError:
        return TraceError(message, file=str(self.path), line=line, field=field)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one file gave. `counts` are summed over files into the trace's notes."""

    sessions: list[Session]
    counts: Counter[str] = field(default_factory=Counter)


def files_below(root: Path) -> list[Path]:
    """The file itself, or every file below the folder, in order of their names.

    Raises:
        TraceError: there is none, or a folder cannot be read.
    """
    try:
        files = [root] if root.is_file() else sorted(file for file in root.rglob("*") if file.is_file())
    except OSError as err:
        raise TraceError(f"cannot be read ({err.strerror})", file=str(root)) from None
    if not files:
        raise TraceError("no such file, or a folder without files", file=str(root))
    return files


def name_below(root: Path, file: Path) -> str:
    """The file's path below the folder, or its name: unique among the files, the same on every machine."""
    return file.name if file == root else file.relative_to(root).as_posix()


def _open(path: Path) -> BinaryIO | gzip.GzipFile:
    """The content, decompressed if it is gzip (by content, not by name)."""
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP_MAGIC
    return gzip.open(path, "rb") if packed else path.open("rb")


def head(path: Path) -> str:
    """The first 64 KiB of the content, as far as they can be read.

    Raises:
        TraceError: the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(HEAD_BYTES)
    except OSError as err:
        raise TraceError(f"cannot be read ({err.strerror})", file=str(path)) from None
    if raw[:2] == _GZIP_MAGIC:
        try:
            raw = zlib.decompressobj(wbits=31).decompress(raw, HEAD_BYTES)
        except zlib.error:
            raw = b""
    return raw.removeprefix(_BOM).decode(errors="replace")


def lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and content of every line that is not blank.

    Raises:
        TraceError: unreadable, damaged or truncated file, or a line above 64 MiB.
    """
    number = 0
    try:
        with _open(source.path) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise source.error(f"line is above {MAX_LINE_BYTES} bytes; split it", line=number)
                if number == 1:
                    raw = raw.removeprefix(_BOM)
                if raw.strip():
                    yield number, raw
    except (OSError, EOFError, zlib.error) as err:
        raise source.error(f"damaged or truncated after this ({err}); fetch it again", line=number) from None


def read_all(source: Source) -> bytes:
    """The whole content of a file that is one document.

    Raises:
        TraceError: unreadable, damaged, truncated, empty, or above 256 MiB.
    """
    try:
        with _open(source.path) as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as err:
        raise source.error(f"damaged or truncated ({err}); fetch it again") from None
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise source.error(f"document is larger than {MAX_DOCUMENT_BYTES} bytes; split it into sessions")
    return raw.removeprefix(_BOM)


def records(source: Source, model: type[AnyModel]) -> Iterator[tuple[int, AnyModel]]:
    """Number and content of every JSON line, `source.limit` at most.

    Raises:
        TraceError: as `lines`, or a line that is no such record, or no line at all.
    """
    count = 0
    for number, raw in lines(source):
        if count == source.limit:
            return
        try:
            record = model.model_validate_json(raw)
        except ValidationError as err:
            raise explained(source, err, number) from None
        count += 1
        yield number, record
    if not count:
        raise source.error("the file is empty; a trace needs at least one request")


def explained(source: Source, err: ValidationError, line: int | None) -> TraceError:
    """The first thing that is wrong, in one line, its value shortened."""
    first = err.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        what = first["msg"].replace("at line 1 column", "at column") if line else first["msg"]
        return source.error(f"malformed or truncated: {what}", line=line)
    got = "" if first["type"] == "missing" else f", got {reprlib.repr(first['input'])}"
    return source.error(f"{first['msg']}{got}", line=line, field=".".join(str(part) for part in first["loc"]))
