"""Token ids without a tokenizer, for recordings that hold text or block hashes.

The rules are fixed, so that the same recording gives the same ids everywhere, and they keep what matters for
a prefix cache: equal beginnings give equal ids, different ones (almost surely, for a KV block) different ids.

* Text: 4 UTF-8 bytes are one token; a last group of 1 to 3 bytes is a token of its own. Hence a text that
  extends another shares all of its tokens up to the last full group.
* Block hashes: token j of a block with id h depends on (h, j) only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vamp.workloads.trace import FIRST_TOK, VOCAB_TOK, Tokens

BYTES_PER_TOK = 4
MAX_TOK = 4_194_304
"""Longest prompt or reply that a loader accepts, tokens: above any model's context, below memory trouble."""
EMPTY_TOK = FIRST_TOK
"""Stands for a recorded text without any byte: every request has at least one token in and one out."""

BlockIds = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


def text_tokens(data: bytes) -> Tokens:
    """Ids of UTF-8 text, shape (ceil(bytes / 4),); one `EMPTY_TOK` for no text at all."""
    if not data:
        return np.array([EMPTY_TOK], dtype=np.int32)
    ids = full_group_tokens(data)
    return ids if len(data) % BYTES_PER_TOK == 0 else np.append(ids, last_group_token(data))


def full_group_tokens(data: bytes) -> Tokens:
    """Ids of the groups of exactly 4 bytes, shape (floor(bytes / 4),)."""
    groups = np.frombuffer(data, dtype="<u4", count=len(data) // BYTES_PER_TOK)
    return _to_ids(_mix64(groups.astype(np.uint64)))


def last_group_token(data: bytes) -> np.int32:
    """Id of the last 1 to 3 bytes. The group's size is hashed too: "a" is another token than "a\\0\\0\\0"."""
    size = len(data) % BYTES_PER_TOK
    word = int.from_bytes(data[len(data) - size :], "little") | size << 32
    return np.int32(_to_ids(_mix64(np.array([word], dtype=np.uint64)))[0])


def block_tokens(blocks: BlockIds, n_tok: int, block_tok: int, salt: int = 0) -> Tokens:
    """Ids of a prompt that is recorded as block hashes; the last block is cut.

    Args:
        blocks: block ids, shape (at least ceil(n_tok / block_tok),).
        n_tok: length of the prompt, tokens.
        block_tok: tokens per block.
        salt: files with different salts share nothing, even where their block ids are equal.
    """
    index = np.arange(n_tok, dtype=np.int64)
    seeds = _mix64(blocks.astype(np.uint64) + np.uint64(salt * _STEP % 2**64))
    offsets = (index % block_tok).astype(np.uint64) * np.uint64(_STEP)
    return _to_ids(_mix64(seeds[index // block_tok] + offsets))


_STEP = 0x9E3779B97F4A7C15  # odd, from the golden ratio: multiples of it are spread over all 64-bit words


def _mix64(words: _Words) -> _Words:
    """A fixed bijection of 64-bit words that spreads every input bit (the finaliser of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _to_ids(words: _Words) -> Tokens:
    """The upper 32 bits scaled into [FIRST_TOK, VOCAB_TOK)."""
    span = np.uint64(VOCAB_TOK - FIRST_TOK)
    return ((words >> np.uint64(32)) * span >> np.uint64(32)).astype(np.int32) + np.int32(FIRST_TOK)
