from multiprocessing import get_context

from hypothesis import given
from hypothesis import strategies as st

from vamp.experiments.progress import PROGRESS_FILE, Board, Progress, describe, publish, read_progress
from vamp.experiments.spec import make_spec

HALF = Progress(1, 2, 5, 10, 0.5)


def board(rows):
    made = Board(get_context("spawn"), len(rows))
    for row, (done, total) in enumerate(rows):
        made.set_turns(row, done, total)
    return made


def test_fraction_weighs_runs_alike_and_counts_stored_ones():
    assert board([(5, 10), (0, 0)]).progress([False, False], n_stored=2) == Progress(2, 4, 5, 10, 2.5 / 4)
    assert board([(5, 10), (0, 0)]).progress([True, False], n_stored=0) == Progress(1, 2, 5, 10, 0.5)
    assert board([]).progress([], n_stored=3).fraction == 1.0
    assert board([]).progress([], n_stored=0).fraction == 1.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(50, 100)), min_size=1, max_size=5), st.integers(0, 5))
def test_fraction_stays_between_stored_share_and_one(rows, n_stored):
    p = board(rows).progress([False] * len(rows), n_stored)
    assert n_stored / p.total <= p.fraction <= 1.0


def test_claim_names_the_process_of_a_run():
    made = board([(0, 0), (0, 0)])
    made.claim(1, 4711)
    assert (made.pid(0), made.pid(1)) == (0, 4711)


def test_published_progress_reads_back(tmp_path, monkeypatch):
    target = tmp_path / "p.json"
    assert read_progress(target) is None
    monkeypatch.setenv(PROGRESS_FILE, str(target))
    publish(HALF)
    assert read_progress(target) == HALF
    target.write_text('{"done": 1')
    assert read_progress(target) is None


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.delenv(PROGRESS_FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    publish(HALF)
    assert list(tmp_path.iterdir()) == []


def test_display_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(PROGRESS_FILE, str(tmp_path / "no" / "such" / "folder" / "p.json"))
    publish(HALF)
    assert list(tmp_path.iterdir()) == []


def test_description_tells_runs_apart():
    sweep = make_spec(workload={"kind": "inhouse", "concurrency": 24}, ratio_pct=15, seed=3)
    trace = make_spec(workload={"kind": "trace", "trace_path": "/some/where/t.jsonl"}, platform="h200_nvl_tp4")
    assert describe(sweep) == "VAMP-15 h100_pcie_tp2 inhouse c=24 seed 3"
    assert describe(trace) == "vLLM h200_nvl_tp4 trace t.jsonl seed 0"
