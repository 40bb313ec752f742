from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vamp.workloads.sources import BlockTokens, Cut, CutTokens, PromptStore
from vamp.workloads.tokens import text_tokens
from vamp.workloads.trace import Turn


def stored(texts: list[bytes]) -> tuple[CutTokens, list[Cut]]:
    store = PromptStore()
    cuts = [store.add(text) for text in texts]
    return CutTokens(store.bases(), tuple(cuts), ()), cuts


texts = st.lists(st.text(alphabet="ab", max_size=12).map(str.encode), min_size=1, max_size=40)


@given(texts)
def test_every_prompt_comes_back_whatever_is_shared(prompts: list[bytes]) -> None:
    tokens, cuts = stored(prompts)
    for turn, prompt in enumerate(prompts):
        assert tokens.prompt(turn).tolist() == text_tokens(prompt).tolist()
        assert cuts[turn].prompt_tok == len(text_tokens(prompt))


def test_prompts_that_extend_one_another_share_one_array() -> None:
    text = b"a conversation that only ever grows, one turn after another"
    tokens, _ = stored([text[:n] for n in (13, 40, 27, len(text))])  # not in order, as in recordings
    assert len(tokens.bases) == 1
    assert len(tokens.bases[0]) == len(text) // 4


def test_other_prompts_do_not_share() -> None:
    tokens, _ = stored([b"one agent here", b"another agent", b"one agent here, again"])
    assert len(tokens.bases) == 2


def test_old_threads_are_closed_and_kept() -> None:
    prompts = [f"{i:04d} thread".encode() for i in range(30)]
    tokens, cuts = stored([*prompts, prompts[0] + b" goes on"])
    assert cuts[-1].base == 30  # the first thread was closed long before
    assert tokens.prompt(0).tolist() == text_tokens(prompts[0]).tolist()


def test_replies_of_a_block_recording_are_equal_to_nothing_else() -> None:
    turns = (Turn(8, 4), Turn(16, 4))
    tokens = BlockTokens((np.array([5]), np.array([5, 6])), turns, 8, serial=3, salt=0)
    other = BlockTokens((np.array([5]), np.array([5, 6])), turns, 8, serial=5, salt=0)
    assert tokens.prompt(1)[:8].tolist() == tokens.prompt(0).tolist() == other.prompt(0).tolist()
    replies = {tuple(source.output(turn).tolist()) for source in (tokens, other) for turn in (0, 1)}
    assert len(replies) == 4
    assert {len(reply) for reply in replies} == {4}
