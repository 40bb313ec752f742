from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.workloads.tokens import EMPTY_TOK, block_tokens, full_group_tokens, last_group_token, text_tokens
from vamp.workloads.trace import FIRST_TOK, VOCAB_TOK, Tokens


def common(a: Tokens, b: Tokens) -> int:
    """Length of the shared beginning, tokens."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


@given(st.binary(max_size=64))
def test_four_bytes_are_a_token(data: bytes) -> None:
    ids = text_tokens(data)
    assert ids.dtype == np.int32
    assert len(ids) == max(1, -(-len(data) // 4))
    assert ids.min() >= FIRST_TOK
    assert ids.max() < VOCAB_TOK


@given(st.binary(max_size=64), st.binary(min_size=1, max_size=64))
def test_a_longer_text_keeps_the_tokens_of_every_full_group(text: bytes, more: bytes) -> None:
    assert common(text_tokens(text), text_tokens(text + more)) >= len(text) // 4


def test_a_changed_byte_changes_its_token_and_no_other() -> None:
    text = bytes(range(40))
    changed = text[:17] + b"\xff" + text[18:]
    assert np.flatnonzero(text_tokens(text) != text_tokens(changed)).tolist() == [4]


def test_the_last_group_is_a_token_of_its_own() -> None:
    assert text_tokens(b"abcde")[1] == last_group_token(b"abcde")
    assert len(full_group_tokens(b"abcde")) == 1
    assert last_group_token(b"a") != last_group_token(b"a\0")
    assert last_group_token(b"a") != full_group_tokens(b"a\0\0\0")[0]


def test_no_text_is_one_token() -> None:
    assert text_tokens(b"").tolist() == [EMPTY_TOK]


def test_the_rule_is_fixed() -> None:
    """Ids are part of what a stored run depends on: a change of the rule must be seen."""
    assert text_tokens(b"The rule is fixed").tolist() == [48235, 102373, 68867, 24503, 91766]
    assert block_tokens(np.array([7, 2**63 - 1]), 3, 2).tolist() == [108935, 79668, 68214]


def test_ids_are_spread_over_the_vocabulary() -> None:
    ids = block_tokens(np.arange(200), 200 * 512, 512)
    histogram, _ = np.histogram(ids, bins=50, range=(FIRST_TOK, VOCAB_TOK))
    assert histogram.min() > 0.85 * len(ids) / 50


blocks = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=8)


@given(blocks, blocks, st.integers(1, 16))
def test_equal_block_ids_give_equal_tokens_wherever_they_stand(a: list[int], b: list[int], size: int) -> None:
    left = block_tokens(np.array(a), len(a) * size, size).reshape(len(a), size)
    right = block_tokens(np.array(b), len(b) * size, size).reshape(len(b), size)
    for i, h in enumerate(a):
        for j, g in enumerate(b):
            if h == g:
                assert (left[i] == right[j]).all()


def test_different_block_ids_give_different_tokens() -> None:
    ids = block_tokens(np.arange(1000), 1000 * 16, 16).reshape(1000, 16)
    assert len({tuple(row) for row in ids.tolist()}) == 1000


@given(st.integers(1, 100))
def test_the_last_block_is_cut(n_tok: int) -> None:
    whole = block_tokens(np.arange(10), 100, 10)
    assert block_tokens(np.arange(-(-n_tok // 10)), n_tok, 10).tolist() == whole[:n_tok].tolist()


@pytest.mark.parametrize("salt", [1, 2, 10_000])
def test_a_salt_changes_everything_and_overflows_silently(salt: int) -> None:
    ids = np.arange(100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        salted = block_tokens(ids, 6400, 64, salt)
    same = (salted == block_tokens(ids, 6400, 64)).mean()
    assert same < 0.001
