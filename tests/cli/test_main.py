import subprocess
import sys

import pytest

import vamp as package
from vamp import cli, errors


def test_version_names_the_vllm_it_is_for(vamp):
    assert vamp("--version") == (0, f"vamp {package.__version__} (for vLLM {package.SUPPORTED_VLLM})\n", "")


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["run", "replay", "--help"], ["reproduce", "--help"]])
def test_help(vamp, argv):
    status, out, err = vamp(*argv)
    assert (status, err) == (0, "")
    assert out.startswith("Usage: vamp")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "Missing command; see vamp --help"),
        (["run"], "Missing command"),
        (["nonsense"], "No such command 'nonsense'"),
        (["run", "closed-cup"], "No such command 'closed-cup'"),
        (["run", "replay", "--rato", "15"], "No such option"),
        (["run", "replay", "--seed", "x"], "Invalid value for '--seed'"),
    ],
)
def test_misuse_is_one_line(refused, argv, message):
    assert message in refused(*argv)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ConfigError("a"), 2),
        (errors.TraceError("a", file="t.jsonl", line=3), 2),
        (errors.CapacityError("a"), 2),
        (errors.GeometryError("a"), 2),
        (errors.RunError("a"), 1),
        (errors.VersionError("a"), 1),
        (errors.InvariantError("a"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_is_one_line_with_its_status(vamp, monkeypatch, error, status):
    def fail():
        raise error

    monkeypatch.setattr("vamp.report.html.build_report", fail)
    got, out, err = vamp("report")
    assert (got, out) == (status, "")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_line_breaks_in_a_message_do_not_break_the_line(vamp, monkeypatch):
    def fail():
        raise errors.RunError("first\n  second")

    monkeypatch.setattr("vamp.report.html.build_report", fail)
    assert vamp("report") == (1, "", "vamp: first second\n")


@pytest.mark.parametrize("status", [0, 1])
def test_report_passes_its_status_on(vamp, monkeypatch, status):
    monkeypatch.setattr("vamp.report.html.build_report", lambda: status)
    assert vamp("report")[0] == status


def test_defect_shows_its_traceback(monkeypatch):
    def fail():
        raise ZeroDivisionError

    monkeypatch.setattr("vamp.report.html.build_report", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["report"])


def test_importing_the_command_imports_nothing_else():
    code = "import sys, vamp.cli; print([m for m in ('typer', 'numpy', 'vamp.experiments') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_command_loads_no_engine():
    code = "import sys, vamp.cli.app; print([m for m in ('vllm', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
