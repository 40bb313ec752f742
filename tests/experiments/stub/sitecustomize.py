"""Python imports this at start where its folder is on PYTHONPATH: worker processes then find the stub engine."""

import sys

from tests.experiments import stub_engine

sys.modules["vamp.sim.run"] = stub_engine
