from __future__ import annotations

import json
from pathlib import Path

import pytest

from vamp.errors import TraceError
from vamp.workloads.loaders import detect
from vamp.workloads.loaders.reading import HEAD_BYTES

from .helpers import LMCACHE, MOONCAKE, SWE_AGENT, jsonl, samples, write


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", sorted(samples()))
def test_each_kind_is_known_by_its_content(tmp_path: Path, kind: str, packed: bool) -> None:
    assert detect(write(tmp_path, "misleading.csv", samples()[kind], packed=packed)) == kind


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"   \n",
        b"# readme\n",
        b"[1, 2]",
        b'{"name": "x"}',
        b"\x1f\x8b\x08broken",
        b"a,b,c\n1,2,3\n",
        b"\xff" * 50,
    ],
)
def test_other_files_are_of_no_kind(tmp_path: Path, content: bytes) -> None:
    assert detect(write(tmp_path, "trace.jsonl", content)) is None


@pytest.mark.parametrize("cut", [20, 60])
def test_a_damaged_first_line_is_still_of_its_kind(tmp_path: Path, cut: int) -> None:
    whole = jsonl({"hash_ids": [1], **MOONCAKE})
    assert detect(write(tmp_path, "x", whole[:cut])) == "mooncake"


def test_field_names_inside_a_text_do_not_count(tmp_path: Path) -> None:
    row = LMCACHE | {"input": json.dumps({"hash_ids": [1], "chat_id": 2, "history": []})}
    assert detect(write(tmp_path, "x", jsonl(row))) == "lmcache"


def test_a_first_line_longer_than_the_head_is_recognised(tmp_path: Path) -> None:
    row = LMCACHE | {"input": "x" * 3 * HEAD_BYTES}
    assert detect(write(tmp_path, "x", jsonl(row), packed=True)) == "lmcache"


def test_mini_swe_agent_calls_it_messages(tmp_path: Path) -> None:
    content = json.dumps({"info": {}, "messages": SWE_AGENT["history"]}, indent=1).encode()
    assert detect(write(tmp_path, "x", content)) == "swe_agent"


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    assert detect(write(tmp_path, "x", b"\xef\xbb\xbf" + jsonl(MOONCAKE))) == "mooncake"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        detect(tmp_path / "missing")
