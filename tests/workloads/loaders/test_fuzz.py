"""Whatever a file contains, a loader gives a usable trace or a `TraceError`; nothing else ever comes out."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from vamp.errors import TraceError
from vamp.workloads.loaders import detect, load_trace

from .helpers import LINE_KINDS, SWE_AGENT, samples

texts = st.text(alphabet=st.sampled_from('a"\\\n\0€\ud800'), max_size=5)  # the last is no character at all
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def check(content: bytes) -> bool:
    """Load it. True if it was refused."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fuzz"
        file.write_bytes(content)
        try:
            trace = load_trace(file)
        except TraceError as error:
            assert "\n" not in str(error)
            assert str(file) in str(error)
            return True
    for session in trace.sessions:
        assert session.start_s >= 0
        for turn, t in enumerate(session.turns):
            assert t.think_s >= 0
            assert len(session.tokens.prompt(turn)) == t.prompt_tok >= 1
            assert len(session.tokens.output(turn)) == t.output_tok >= 1
    return False


def test_valid_samples_are_not_refused() -> None:
    assert not any(check(content) for content in samples().values())


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_random_bytes(content: bytes) -> None:
    check(content)
    check(b"\x1f\x8b" + content)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid file with a few bytes changed, put in or taken out; perhaps packed, perhaps cut."""
    data = bytearray(samples()[draw(st.sampled_from(sorted(samples())))])
    if packed := draw(st.booleans()):
        data = bytearray(gzip.compress(bytes(data), mtime=0))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
        data = data or bytearray(b" ")
    end = draw(st.integers(0, len(data))) if packed or draw(st.booleans()) else len(data)
    return bytes(data[:end])


@given(mutated())
@settings(max_examples=400, deadline=None)
def test_mutated_files(content: bytes) -> None:
    check(content)


@st.composite
def odd_rows(draw: st.DrawFn) -> bytes:
    """A valid line whose fields have any values of the right or the wrong type."""
    kind = draw(st.sampled_from(sorted(LINE_KINDS)))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        row = dict(LINE_KINDS[kind])
        for field in draw(st.lists(st.sampled_from(sorted(row)), max_size=2)):
            row[field] = draw(json_values)
        rows.append(json.dumps(row))
    return "\n".join(rows).encode()


@given(odd_rows())
@settings(max_examples=300, deadline=None)
def test_odd_values(content: bytes) -> None:
    check(content)


@given(st.lists(st.fixed_dictionaries({"role": json_values, "content": json_values, "tool_calls": json_values})))
@settings(deadline=None)
def test_odd_messages(messages: list[object]) -> None:
    check(json.dumps({"history": SWE_AGENT["history"] + messages}).encode())


@given(st.lists(st.tuples(st.floats(), st.integers(0, 2000), st.integers(0, 3), st.lists(st.integers(0, 5)))))
@settings(deadline=None)
def test_mooncake_lines_of_any_order_and_size(rows: list[tuple[float, int, int, list[int]]]) -> None:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    check("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows).encode())


def test_the_fuzz_reaches_every_loader(tmp_path: Path) -> None:
    kinds = set()
    for name, content in samples().items():
        (tmp_path / name).write_bytes(content)
        kinds.add(detect(tmp_path / name))
    assert kinds == {"lmcache", "swe_agent", "mooncake", "bailian", "azure"}
