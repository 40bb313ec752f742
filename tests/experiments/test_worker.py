import subprocess
import sys

from vamp.experiments.store import RunStore, code_digest, run_key

from .conftest import spec
from .stub_engine import REFUSES


def in_worker(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_it_loads_nothing_that_reads_thread_settings():
    heavy = "[m for m in ('numpy', 'torch', 'vllm') if m in sys.modules]"
    assert in_worker(f"import sys, vamp.experiments.worker; print({heavy})") == "[]"


def test_start_sets_the_quiet_environment_and_leaves_ctrl_c_to_the_parent():
    code = """
import os, signal
from vamp.experiments import worker
worker.start()
print({k: os.environ[k] for k in worker.QUIET} == worker.QUIET)
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""
    assert in_worker(code) == "True\nTrue"


def test_execute_stores_the_run_under_its_key_and_finds_it_the_next_time(stub):
    code = """
from tests.experiments.conftest import spec
from vamp.experiments import worker
print(worker.execute(spec(7)))
"""
    folder = in_worker(code)
    key = run_key(spec(7), code_digest())
    assert folder == str(RunStore().path(key))
    assert RunStore().read(key).meta["seed"] == 7
    assert in_worker(code) == folder
    assert stub.seeds == [7]


def test_refused_run_leaves_nothing_in_the_store(stub, runs):
    code = f"""
from tests.experiments.conftest import spec
from vamp.errors import CapacityError
from vamp.experiments import worker
try:
    worker.execute(spec({REFUSES}))
except CapacityError as err:
    print(err)
"""
    assert in_worker(code).startswith("session 'x' needs 10 tokens")
    assert [p.name for p in runs.iterdir()] == [".locks"]
