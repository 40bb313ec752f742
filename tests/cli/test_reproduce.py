import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.conftest import alive, interruptible, printed, wait_until
from vamp.cli.reproduce import join_pairs

words = st.text("abcxyz_", min_size=1).filter(str.isidentifier)


@pytest.mark.parametrize(
    ("args", "joined"),
    [
        (["table4", "-p", "ratio", "15", "-p", "seed", "-1", "x"], ["table4", "-p", "ratio=15", "-p", "seed=-1", "x"]),
        (["-p", "ratio=15", "x"], ["-p", "ratio=15", "x"]),
        (["--parameter", "trace", "a=b c"], ["--parameter", "trace=a=b c"]),
        (["-p", "ratio"], ["-p", "ratio"]),
        (["-p"], ["-p"]),
        (["--", "-p", "a", "b"], ["--", "-p", "a", "b"]),
    ],
)
def test_name_and_value_become_one(args, joined):
    assert join_pairs(args) == joined


@given(st.lists(st.tuples(words, st.text())))
def test_every_pair_survives(pairs):
    args = [word for name, value in pairs for word in ("-p", name, value)]
    assert join_pairs(args) == [word for name, value in pairs for word in ("-p", f"{name}={value}")]


@pytest.fixture
def table4(checkout):
    return checkout("07_table4_replay", "print(ratio, seed, trace)")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["table9"], "notebook 'table9' is unknown; choose from: 07_table4_replay"),
        (["table4", "-p", "sed", "1"], "parameter 'sed'; valid: backend, fast, ratio, ratios, repeats, seed, trace"),
        (["table4", "-p", "seed", "x"], "parameter seed is 'x'; it must be int"),
        (["table4", "-p", "ratio", "60"], "ratio is 60; it must be a number from 0 to 50"),
        (["table4", "-p", "ratio"], "-p 'ratio' is no parameter; write -p NAME VALUE"),
        (["table4", "--platform", "h100_pcie_tp2"], "no chosen notebook has a parameter 'platform'"),
        (["table4", "--backend", "tpu"], "backend 'tpu' is not in this version"),
        (["table4", "--trace", "/no/such"], "trace /no/such does not exist"),
        (["table4", "-j", "0"], "-j is 0; it must be at least 1"),
    ],
)
def test_senseless_request_is_one_line_and_nothing_starts(refused, table4, tmp_path, argv, message, monkeypatch):
    if "--platform" in argv:
        monkeypatch.setattr("vamp.cli.checks.find_platform", lambda name: name)  # the test's checkout has no profiles
    assert message in refused("reproduce", *argv)
    assert not (tmp_path / "artifact").exists()


def test_parameters_reach_the_notebook(vamp, table4, tmp_path, monkeypatch):
    (tmp_path / "my trace.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    status, out, err = vamp("reproduce", "table4", "-p", "ratio", "20", "-p", "seed", "3", "--trace", "my trace.jsonl")
    assert status == 0, err
    executed = tmp_path / "artifact" / "results" / table4.stem / f"{table4.stem}.sim.ipynb"
    assert printed(executed) == f"20.0 3 {tmp_path / 'my trace.jsonl'}\n"
    assert table4.stem in out


def test_status_is_zero_only_when_every_notebook_ran(vamp, table4, checkout):
    checkout("08_broken", "raise ValueError('no [such] thing')")
    status, out, err = vamp("reproduce", "-j", "2")
    assert status == 1
    assert [line.split()[:2] for line in out.splitlines() if "0" in line] == [
        [table4.stem, "ran"],
        ["08_broken", "failed"],
    ]
    assert "08_broken: failed (" in err
    assert err.splitlines()[-1] == "vamp: 08_broken: cell 2: ValueError: no [such] thing"


@pytest.fixture
def sleeping(checkout, tmp_path):
    """`vamp reproduce` under way, and the process id of its kernel, which sleeps."""
    checkout("a", "import os, pathlib, time\nprint('before')", PID_THEN_SLEEP.replace("FILE", str(tmp_path / "pid")))
    command = [sys.executable, "-c", "import sys; from vamp.cli import main; sys.exit(main())", "reproduce", "a"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=interruptible
    )
    wait_until((tmp_path / "pid").exists)
    return process, int((tmp_path / "pid").read_text())


def test_ctrl_c_ends_with_130_and_leaves_no_kernel(sleeping, tmp_path):
    process, kernel = sleeping
    assert alive(kernel)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "vamp: interrupted"
    assert "Traceback" not in err
    wait_until(lambda: not alive(kernel))
    assert printed(tmp_path / "artifact" / "results" / "a" / "a.sim.ipynb").startswith("before\n")


def test_killed_command_leaves_no_kernel(sleeping):
    process, kernel = sleeping
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: not alive(kernel))


PID_THEN_SLEEP = """
part = pathlib.Path("FILE.part")
part.write_text(str(os.getpid()))
part.rename("FILE")
time.sleep(300)
"""
