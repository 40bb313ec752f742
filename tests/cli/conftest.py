"""The command line runs in this process; what it starts runs in others, as always."""

import pytest

from tests.experiments.conftest import checkout, runs, stub
from vamp.cli import main

__all__ = ["checkout", "runs", "stub"]


@pytest.fixture
def vamp(capsys):
    """`vamp("run", "replay")` gives (exit status, stdout, stderr)."""

    def call(*argv):
        capsys.readouterr()
        status = main([str(arg) for arg in argv])
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def refused(vamp):
    """The one line that refuses a request; nothing on stdout, exit status 2."""

    def call(*argv):
        status, out, err = vamp(*argv)
        assert (status, out) == (2, ""), err
        assert err.startswith("vamp: ")
        assert err.count("\n") == 1, err
        return err.strip()

    return call
