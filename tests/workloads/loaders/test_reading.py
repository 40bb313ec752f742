from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from vamp.errors import TraceError
from vamp.workloads.loaders import reading
from vamp.workloads.loaders.reading import Source, lines, read_all

from .helpers import write


def source(file: Path, limit: int | None = None) -> Source:
    return Source(file, "x", 0, limit)


@pytest.mark.parametrize("packed", [False, True])
def test_lines_are_numbered_and_blank_ones_skipped(tmp_path: Path, packed: bool) -> None:
    file = write(tmp_path, "x", b"\xef\xbb\xbfone\n\n  \nfour\nlast", packed=packed)
    assert list(lines(source(file))) == [(1, b"one\n"), (4, b"four\n"), (5, b"last")]
    assert read_all(source(file)).startswith(b"one")


def test_a_truncated_gzip_names_the_last_good_line(tmp_path: Path) -> None:
    body = b"".join(b"%06d\n" % i for i in range(50_000))
    file = tmp_path / "x.gz"
    file.write_bytes(gzip.compress(body)[:-5000])
    with pytest.raises(TraceError, match=r"x\.gz:\d+: damaged or truncated after this"):
        list(lines(source(file)))
    with pytest.raises(TraceError, match=r"x\.gz: damaged or truncated"):
        read_all(source(file))


def test_a_damaged_gzip_is_an_error(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"line\n" * 1000))
    packed[-6] ^= 0xFF  # the checksum
    file = tmp_path / "x.gz"
    file.write_bytes(bytes(packed))
    with pytest.raises(TraceError, match="damaged or truncated"):
        list(lines(source(file)))


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(reading, "MAX_DOCUMENT_BYTES", 1000)
    fits = write(tmp_path, "fits", b"x" * 1000)
    assert len(next(lines(source(fits)))[1]) == len(read_all(source(fits))) == 1000
    long = write(tmp_path, "long", b"short\n" + b"x" * 1001)
    with pytest.raises(TraceError, match="long:2: line is above 1000 bytes"):
        list(lines(source(long)))
    with pytest.raises(TraceError, match="document is larger than 1000 bytes"):
        read_all(source(long))


def test_a_folder_is_not_read_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="damaged or truncated"):
        list(lines(source(tmp_path)))
