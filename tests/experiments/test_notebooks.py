import json
import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.errors import ConfigError
from vamp.experiments import notebooks
from vamp.experiments.notebooks import coerce, find, parameters_of, plan, run

from .conftest import printed


def only(job_list, **more):
    return run(job_list, **more)[0]


def test_notebook_is_found_by_stem_or_part(checkout):
    table, figure = checkout("07_table4_replay"), checkout("11_fig9_capacity")
    assert find(["table4"]) == [table]
    assert find(["11_fig9_capacity"]) == [figure]
    assert find(["table4", "07_table4_replay.ipynb"]) == [table]
    assert find([]) == [table, figure]


def test_stem_wins_over_part(checkout):
    short = checkout("fig1")
    checkout("fig11")
    assert find(["fig1"]) == [short]


def test_notebook_without_parameters_is_not_among_all_but_can_be_named(checkout):
    start = checkout("00_start_here", parameters="")
    assert find([]) == []
    assert find(["start"]) == [start]


@pytest.mark.parametrize(("name", "problem"), [("table9", "is unknown"), ("table", "is ambiguous"), ("", "is ambig")])
def test_wrong_name_lists_the_choices(checkout, name, problem):
    checkout("01_table1"), checkout("02_table2")
    with pytest.raises(ConfigError, match=rf"{problem}.*; choose from: 01_table1, 02_table2"):
        find([name])


def test_parameters_and_defaults_are_read_from_the_notebook(checkout):
    assert parameters_of(checkout("a")) == {
        "ratio": 15.0,
        "seed": 0,
        "trace": "",
        "backend": "sim",
        "repeats": 1,
        "ratios": [15, 20],
        "fast": False,
    }


def test_broken_file_is_one_clear_error(checkout):
    path = checkout("a")
    path.write_text("{")
    with pytest.raises(ConfigError, match="is no readable notebook"):
        parameters_of(path)


def test_unknown_parameter_is_refused_with_the_valid_ones(checkout):
    with pytest.raises(
        ConfigError, match=r"parameter 'sed'; valid: backend, fast, ratio, ratios, repeats, seed, trace"
    ):
        plan([checkout("a")], {"sed": "1"})


def test_parameter_goes_to_the_notebooks_that_have_it(checkout):
    both = [checkout("a", parameters="seed = 0"), checkout("b", parameters="ratio = 15")]
    assert [job.parameters for job in plan(both, {"seed": "7"})] == [{"seed": 7}, {}]


def test_full_asks_for_the_papers_runs_unless_told_otherwise(checkout):
    paths = [checkout("a"), checkout("b", parameters="seed = 0")]
    assert [job.parameters for job in plan(paths, {}, full=True)] == [{"repeats": 5}, {}]
    assert plan(paths, {"repeats": "2"}, full=True)[0].parameters == {"repeats": 2}
    assert plan(paths, {})[0].parameters == {}


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (0, "7", 7),
        (0, "-1", -1),
        (15.0, "12.5", 12.5),
        (15.0, "20", 20.0),
        (False, "true", True),
        (True, "False", False),
        ("sim", "15", "15"),
        ([15, 20], "10,15", [10, 15]),
        ([15, 20], "[10]", [10]),
        ([], "a, b", ["a", "b"]),
        (None, "3", 3),
        (None, "h100", "h100"),
    ],
)
def test_value_takes_the_type_of_the_default(default, text, value):
    found = coerce("x", text, default)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("default", "text"), [(0, "1.5"), (0, "x"), (15.0, "fast"), (False, "1"), ([15], "a"), ([15], "[1")]
)
def test_wrong_type_names_parameter_value_and_default(default, text):
    with pytest.raises(ConfigError, match=r"parameter x is .*; it must be .*, like its default"):
        coerce("x", text, default)


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text()))
def test_printed_value_reads_back(value):
    assert coerce("x", str(value), value) == value


WRITE_RESULTS = """
import json
from vamp import paths
folder = paths.results_dir() / "07_table4"
values = [{"verdict": v} for v in ("trend", "trend", "match", "cited")]
(folder / f"results.{backend}.json").write_text(json.dumps({"values": values}))
print(ratio, seed, repeats)
"""
TRANSPORT = """
import ipykernel, json
from pathlib import Path
print(json.loads(Path(ipykernel.get_connection_file()).read_text())["transport"])
"""


def test_notebook_runs_with_its_parameters_and_the_source_stays(checkout, tmp_path):
    source = checkout("07_table4", TRANSPORT, WRITE_RESULTS)
    before = source.read_bytes()
    outcome = only(plan([source], {"ratio": "20", "seed": "3"}, full=True))
    assert (outcome.state, outcome.error) == ("ran", ""), outcome
    assert outcome.verdicts == {"trend": 2, "match": 1, "cited": 1}
    executed = tmp_path / "artifact" / "results" / "07_table4" / "07_table4.sim.ipynb"
    assert printed(executed) == "ipc\n20.0 3 5\n"
    assert source.read_bytes() == before
    # A results file of an earlier run is not this run's.
    old = executed.parent / "results.sim.json"
    os.utime(old, (time.time() - 999,) * 2)
    assert notebooks.verdicts_of(plan([source], {})[0], seconds=5.0) == {}


def test_failed_cell_is_told_in_one_line_and_stops_no_other_notebook(checkout, tmp_path):
    jobs = plan([checkout("a", "print('before')", "1 / 0", "print('after')"), checkout("b", "print('fine')")], {})
    bad, good = run(jobs, parallel=2)
    assert (bad.state, bad.error) == ("failed", "cell 3: ZeroDivisionError: division by zero")
    assert good.state == "ran"
    text = printed(tmp_path / "artifact" / "results" / "a" / "a.sim.ipynb")
    assert "before" in text
    assert "after" not in text


def test_kernels_at_the_same_time_share_no_socket_and_leave_none(checkout, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    where = "import ipykernel, time\nprint(ipykernel.get_connection_file())\ntime.sleep(2)"
    outcomes = run(plan([checkout(stem, where) for stem in "abc"], {}), parallel=3)
    assert [o.error for o in outcomes] == ["", "", ""]
    files = {printed(tmp_path / "artifact" / "results" / stem / f"{stem}.sim.ipynb").strip() for stem in "abc"}
    assert len(files) == 3
    assert not any(Path(file).parent.exists() for file in files)
    assert list(Path.cwd().iterdir()) == []


def test_killed_kernel_fails_within_a_minute_and_keeps_what_ran(checkout, tmp_path):
    job = plan([checkout("a", "print('before')", "import os; os.kill(os.getpid(), 9)", "print('after')")], {})
    start_s = time.monotonic()
    outcome = only(job)
    assert time.monotonic() - start_s < 60
    assert outcome.state == "failed"
    assert outcome.error.startswith("DeadKernelError")
    assert printed(tmp_path / "artifact" / "results" / "a" / "a.sim.ipynb") == "before\n"


def test_lost_notebook_process_is_a_failure_too_and_leaves_no_temp_folder(checkout, tmp_path, monkeypatch):
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    outcome = only(plan([checkout("a", "import os; os.kill(os.getppid(), 9)\nimport time; time.sleep(60)")], {}))
    assert outcome.state == "failed"
    assert "its process died (exit status -9)" in outcome.error
    assert list((tmp_path / "temp").iterdir()) == []


def test_cell_has_a_time_limit(checkout):
    slow = only(plan([checkout("a", "import time; time.sleep(60)")], {}, cell_timeout_s=1))
    assert slow.error.startswith("CellTimeoutError")


def test_kernel_start_has_a_time_limit(checkout, tmp_path, monkeypatch):
    late = 'import sys, time\nif "ipykernel_launcher" in sys.orig_argv:\n    time.sleep(60)\n'
    (tmp_path / "sitecustomize.py").write_text(late)  # Python imports it at start
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = only(plan([checkout("a")], {}, start_timeout_s=1))
    assert outcome.error == "RuntimeError: Kernel didn't respond in 1 seconds"


def test_kernel_needs_no_engine_and_prints_a_line_per_run(checkout, stub, tmp_path):
    cell = """
import sys
from vamp.experiments.ensure import ensure
from vamp.experiments.spec import make_spec
runs = ensure([make_spec(workload={"kind": "inhouse", "concurrency": 2}, seed=s) for s in range(2)])
print(len(runs), [m for m in ("vllm", "torch") if m in sys.modules])
"""
    seen = []
    outcome = only(plan([checkout("a", cell)], {}), show=lambda outcomes: seen.append(outcomes[0].progress))
    assert outcome.state == "ran", outcome
    lines = printed(tmp_path / "artifact" / "results" / "a" / "a.sim.ipynb").splitlines()
    assert [line.split(":")[0].split()[-1] for line in lines[:2]] in (["0", "1"], ["1", "0"])
    assert lines[2:] == ["2 []"]
    assert sorted(stub.seeds) == [0, 1]
    assert any(p and p.total == 2 for p in seen)


def test_senseless_parallelism_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        run([], parallel=0)


def test_nothing_to_run():
    assert run([]) == []


def test_results_file_without_verdicts_is_not_read_as_verdicts(checkout, tmp_path):
    job = plan([checkout("a")], {})[0]
    job.output.parent.mkdir(parents=True)
    assert notebooks.verdicts_of(job, 1.0) == {}
    (job.output.parent / "results.sim.json").write_text(json.dumps({"values": []}))
    assert notebooks.verdicts_of(job, 1.0) == {}


def test_full_asks_for_the_papers_hours_and_the_runs_of_that_workload(checkout):
    path = checkout("08_fig6_closed_loop", parameters="backend = 'sim'\nhours: float = 3.0\nrepeats = 1")
    assert plan([path], {}, full=True)[0].parameters == {"repeats": 3, "hours": 6.0}
    assert plan([path], {"hours": "2"}, full=True)[0].parameters == {"repeats": 3, "hours": 2.0}
    assert plan([path], {})[0].parameters == {}
