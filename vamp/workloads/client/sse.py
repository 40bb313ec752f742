"""Server-sent events out of a byte stream that is cut anywhere.

The WHATWG rules that matter here: a line ends with CRLF, LF or CR; a line that starts with ':' is a comment; one space
after the colon is not part of the value; several data lines are joined by LF; an empty line ends the event. Bytes are
decoded line by line, so a character cut in two by the network is whole again. One deviation: an event that the end of
the stream leaves without its empty line is given out, since servers that forget it exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from vamp.errors import RunError

MAX_LINE_BYTES = 8 * 1024 * 1024
"""vLLM repeats the prompt's token ids in its first event, at most 8 bytes each: room for a prompt of a million."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event; `event` is its type, "message" when the server names none."""

    data: str
    event: str = "message"


class SseSplitter:
    """Feed it chunks, take events. However the same bytes are cut, the events are the same.

    Args:
        max_line_bytes: longest line, and largest data of one event. More is an error, not more memory.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_line_bytes
        self._line = bytearray()  # the unfinished line
        self._data: list[str] = []
        self._data_bytes = 0
        self._event = ""
        self._after_cr = False  # the last byte was CR: an LF now belongs to it
        self._at_start = True

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Events that `chunk` completes, in order. Consume the iterator: it does the work.

        Raises: RunError if a line, or the data of an event, is longer than `max_line_bytes`.
        """
        if not chunk:
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        *complete, rest = _LINE_END.split(chunk)
        for part in complete:
            self._extend(part)
            event = self._end_line()
            if event is not None:
                yield event
        self._extend(rest)

    def close(self) -> Iterator[SseEvent]:
        """The stream ended: the event that was still open, if it has data."""
        event = self._end_line() if self._line else None
        event = event or self._dispatch()
        if event is not None:
            yield event

    def _extend(self, part: bytes) -> None:
        self._line += part
        self._check(len(self._line), "a line")

    def _check(self, size_bytes: int, what: str) -> None:
        if size_bytes > self._max_bytes:
            raise RunError(
                f"event stream: {what} is longer than {self._max_bytes} bytes; "
                "raise max_line_bytes if the server means it"
            )

    def _end_line(self) -> SseEvent | None:
        raw = bytes(self._line)
        self._line.clear()
        if self._at_start:
            raw, self._at_start = raw.removeprefix(_BOM), False
        if not raw:
            return self._dispatch()
        name, _, value = raw.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data_bytes += len(raw)
            self._check(self._data_bytes, "an event")
            self._data.append(value)
        elif name == "event":
            self._event = value
        return None

    def _dispatch(self) -> SseEvent | None:
        data, event = self._data, self._event or "message"
        self._data, self._data_bytes, self._event = [], 0, ""
        return SseEvent("\n".join(data), event) if data else None
