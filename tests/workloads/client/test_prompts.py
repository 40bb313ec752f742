from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.client.peer import session
from vamp.workloads.client.prompts import Conversation, folded
from vamp.workloads.trace import FIRST_TOK, SeparateTokens, Session, Turn


def growing() -> Session:
    return session("a", [(4, 3, 0.0), (9, 2, 0.0), (14, 1, 0.0)])


def test_as_recorded() -> None:
    s = growing()
    talk = Conversation(s)
    assert talk.prompt(1) == s.tokens.prompt(1).tolist()


def test_heard_reply_takes_the_place_of_the_recorded_one_in_every_later_prompt() -> None:
    s = growing()
    talk = Conversation(s)
    talk.heard(0, [901, 902, 903])
    recorded = s.tokens.prompt(1).tolist()
    assert talk.prompt(1) == [*recorded[:4], 901, 902, 903, *recorded[7:]] != recorded
    talk.heard(1, [911, 912])
    later = s.tokens.prompt(2).tolist()
    assert talk.prompt(2) == [*later[:4], 901, 902, 903, *later[7:9], 911, 912, *later[11:]]
    assert s.tokens.prompt(2).tolist() == later, "the trace itself must not change"


def test_prompt_that_was_cut_is_sent_as_recorded() -> None:
    ids = [np.array(p, np.int32) for p in ([5, 6], [8, 9, 7])]
    cut = Session("a", (Turn(2, 1), Turn(3, 1)), SeparateTokens(ids, [np.array([4], np.int32)] * 2))
    talk = Conversation(cut)
    talk.heard(0, [900])
    assert talk.prompt(1) == [8, 9, 7]


def test_failed_turn_in_between() -> None:
    s = growing()
    talk = Conversation(s)
    talk.heard(1, [911, 912])
    later = s.tokens.prompt(2).tolist()
    assert talk.prompt(2) == [*later[:9], 911, 912, *later[11:]]


@given(st.lists(st.integers(FIRST_TOK, 151_935), min_size=1, max_size=40), st.integers(FIRST_TOK + 1, 2000))
def test_folded_ids_are_inside_and_keep_equality(ids: list[int], vocab_tok: int) -> None:
    array = np.array(ids, np.int32)
    out = folded(array, vocab_tok)
    assert out.dtype == np.int32
    assert out.min() >= FIRST_TOK and out.max() < vocab_tok
    assert out.tolist() == [folded(array[n : n + 1], vocab_tok)[0] for n in range(len(ids))]
    assert folded(array, None) is array
    assert (folded(out, vocab_tok) == out).all()


def test_small_vocabulary_and_heard_reply() -> None:
    talk = Conversation(growing(), vocab_tok=50)
    talk.heard(0, [1, 2, 49])
    prompt = talk.prompt(1)
    assert max(prompt) < 50 and prompt[4:7] == [1, 2, 49]
