from __future__ import annotations

import pandas as pd
import pytest

from tests.experiments.made_up import run
from tests.report.conftest import checkout  # noqa: F401
from vamp.errors import ConfigError
from vamp.experiments import fig9, session_reuse
from vamp.experiments.spec import RunSpec
from vamp.measure.records import RunResult

P = session_reuse.Params.check()
GROWTH_TOK, OUTPUT_TOK, BLOCK_TOK = 6000, 11, 544


def made(spec: RunSpec, lost_from: int) -> RunResult:
    """A growing session that finds all whole blocks again, up to `lost_from`, where it finds none. Made up."""
    result = run(spec, sessions=28, turns=6)
    req = result.requests
    req["prompt_tok"] = (req["turn"] + 1) * GROWTH_TOK
    left = (req["turn"] * GROWTH_TOK + OUTPUT_TOK) // BLOCK_TOK * BLOCK_TOK
    req["cached_tok"] = left.where((req["turn"] > 0) & (req["turn"] + 1 < lost_from), 0)
    return result


def rows() -> pd.DataFrame:
    specs = session_reuse.specs(P)
    return session_reuse.turns(P, specs, [made(specs[0], 4), made(specs[1], 99)])


def test_the_runs_are_fig9s() -> None:
    known = {s.model_dump_json() for s in fig9.specs(fig9.Params.check())}
    assert {s.model_dump_json() for s in session_reuse.specs(P)} < known


def test_every_token_has_one_fate() -> None:
    found = rows()
    assert len(found) == 2 * 6
    assert (found["reused_tok"] + found["evicted_tok"] + found["new_tok"] == found["prompt_tok"]).all()
    assert (found[["reused_tok", "evicted_tok", "new_tok"]] >= 0).all().all()


def test_the_turn_of_the_eviction_is_found() -> None:
    found = rows()
    assert session_reuse.first_eviction(found, "vLLM") == 4
    assert session_reuse.first_eviction(found, "VAMP-25") is None
    assert session_reuse.lines(P, found).splitlines() == [
        "vLLM: blocks are gone and recomputed from turn 4",
        "VAMP-25: all blocks are there up to turn 6",
    ]


@pytest.mark.usefixtures("checkout")
def test_illustrations_are_cited() -> None:
    found = rows()
    saved = session_reuse.save(P, found)
    assert set(saved.verdicts.values()) == {"cited"} and "bg.eviction_turn_example" in saved.verdicts
    assert session_reuse.figure(P, found).png.stat().st_size > 5000
    assert session_reuse.table(found).shape == (12, 6)


def test_an_unknown_session_is_refused() -> None:
    p = session_reuse.Params.check(session=28)
    with pytest.raises(ConfigError, match="must be below 28"):
        session_reuse.turns(p, [], [])
