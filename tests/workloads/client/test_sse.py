from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import RunError
from vamp.workloads.client.sse import SseEvent, SseSplitter


def events(chunks: list[bytes], max_line_bytes: int = 10_000) -> list[SseEvent | str]:
    """All events; an error as its text, at its place."""
    splitter = SseSplitter(max_line_bytes)
    out: list[SseEvent | str] = []
    try:
        for chunk in chunks:
            out.extend(splitter.feed(chunk))
        out.extend(splitter.close())
    except RunError as error:
        return [*out, str(error)]
    return out


def cut(stream: bytes, sizes_bytes: list[int]) -> list[bytes]:
    """Chunks of these sizes, again and again."""
    chunks, sizes = [], itertools.cycle(sizes_bytes)
    while stream:
        size = next(sizes)
        chunks.append(stream[:size])
        stream = stream[size:]
    return chunks


chunk_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=12)
lines = st.one_of(
    st.text("ab é日🙂:", max_size=12).map(lambda s: f"data: {s}"),
    st.sampled_from(["", "", "", ": comment", "data", "data:", "data:x", "event: error", "id: 1", "retry: 5", "noise"]),
)
streams = st.tuples(
    st.lists(st.tuples(lines, st.sampled_from(["\n", "\r\n", "\r"])), max_size=25),
    st.sampled_from(["", "\ufeff"]),
    lines,
).map(lambda parts: (parts[1] + "".join(a + b for a, b in parts[0]) + parts[2]).encode())


@given(streams, chunk_sizes)
def test_any_split_gives_the_same_events(stream: bytes, sizes_bytes: list[int]) -> None:
    assert events(cut(stream, sizes_bytes)) == events([stream])


@given(streams, chunk_sizes, st.integers(1, 12))
def test_any_split_finds_the_same_line_too_long(stream: bytes, sizes_bytes: list[int], limit: int) -> None:
    assert events(cut(stream, sizes_bytes), limit) == events([stream], limit)


@given(st.binary(max_size=200), chunk_sizes)
def test_any_bytes_at_all(stream: bytes, sizes_bytes: list[int]) -> None:
    assert events(cut(stream, sizes_bytes)) == events([stream])


def test_one_byte_at_a_time() -> None:
    stream = ': hi\r\ndata: {"é": "日🙂"}\r\n\r\nevent: error\r\ndata: a\r\ndata: b\n\n'.encode()
    want = [SseEvent('{"é": "日🙂"}'), SseEvent("a\nb", "error")]
    assert events([bytes([b]) for b in stream]) == want
    assert events([stream]) == want
    assert events([stream.replace(b"\xf0", b"")]) != want
    assert events([stream.replace(b"a\r\n", b"a\r\n\n")]) != want


@pytest.mark.parametrize(
    ("stream", "want"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),  # several events in a chunk
        (b"data: a\rdata: b\r\r", ["a\nb"]),
        (b"data:  a\n\n", [" a"]),  # one space only
        (b"data:a\n\n", ["a"]),
        (b"data\n\n", [""]),
        (b":data: a\n\n", []),
        (b" data: a\n\n", []),
        (b"\n\n\n", []),
        (b"event: x\n\ndata: a\n\n", ["a"]),  # an event without data is none, and its type is forgotten
        (b"data: a", ["a"]),  # the last empty line is missing
        (b"data: a\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"", []),
    ],
)
def test_rules(stream: bytes, want: list[str]) -> None:
    assert events([stream]) == [SseEvent(data) for data in want]


def test_line_longer_than_the_limit() -> None:
    splitter = SseSplitter(max_line_bytes=10)
    assert [e.data for e in splitter.feed(b"data: 1234\n\n")] == ["1234"]
    with pytest.raises(RunError, match="a line is longer than 10 bytes"):
        list(splitter.feed(b"data: 12345"))


def test_event_of_many_lines_longer_than_the_limit() -> None:
    splitter = SseSplitter(max_line_bytes=20)
    with pytest.raises(RunError, match="an event is longer than 20 bytes"):
        for _ in range(1000):
            list(splitter.feed(b"data: x\n"))
