from __future__ import annotations

from vamp.workloads.inhouse import inhouse


def test_copies_share_no_prefix_with_the_original_or_each_other() -> None:
    trace = inhouse(4, growth_tok=40, output_tok=8, seed=0).repeated(3)
    assert len(trace.sessions) == 12
    assert trace.notes["copies"] == 3
    assert len({s.session_id for s in trace.sessions}) == 12
    starts = {tuple(s.tokens.prompt(0)[:4].tolist()) for s in trace.sessions}
    assert len(starts) == 12


def test_a_copy_has_the_same_shape_and_grows_the_same_way() -> None:
    one, copy = inhouse(1, growth_tok=40, output_tok=8, seed=0).repeated(2).sessions
    assert copy.turns == one.turns
    grown = copy.tokens.prompt(1)
    assert grown[:40].tolist() == copy.tokens.prompt(0).tolist()
    assert grown[40:48].tolist() == copy.tokens.output(0).tolist()
    assert grown.dtype == one.tokens.prompt(1).dtype


def test_one_copy_is_the_trace_itself() -> None:
    trace = inhouse(2, growth_tok=40, output_tok=8, seed=0)
    assert trace.repeated(1).sessions == trace.sessions
