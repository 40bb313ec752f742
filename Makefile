# make reproduce    set-up, the notebooks, the report      make test    set-up, lint, types, tests, notebooks
# HOST=gpu takes the CUDA build of vLLM; PYTHON=/path/to/python chooses the interpreter; NOTEBOOKS=table4 runs a part.
HOST ?= cpu
NOTEBOOKS ?=
BIN := .venv/bin
READY := .venv/.ready-$(HOST)
NOTEBOOK_CELL_S := 3600

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup reproduce report test lint unit live notebooks lab clean distclean

help:  ## what there is
	@awk -F ':.*## *' '/^[a-z]+:.*##/ { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  HOST=cpu|gpu  PYTHON=python3.12  NOTEBOOKS='table4 fig9'"

setup: $(READY)  ## make .venv from the pin list

$(READY): env/$(HOST)/requirements.lock pyproject.toml tools/setup.sh
	@PYTHON="$(PYTHON)" tools/setup.sh $(HOST)
	@touch $@

reproduce: $(READY)  ## run the notebooks and write artifact/report/index.html
	$(BIN)/vamp reproduce $(NOTEBOOKS)
	$(BIN)/vamp report || [ $$? -eq 3 ]  # 3: a claim is a miss, named in the lines above; the reproduction itself ran

report: $(READY)  ## write the report from the results that are there
	$(BIN)/vamp report

test: lint unit notebooks  ## lint, types, tests, and the notebooks on their defaults

lint: $(READY)
	$(BIN)/ruff check vamp tests notebooks tools
	$(BIN)/ruff format --check vamp tests notebooks tools
	$(BIN)/python tools/clean_notebooks.py --check
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest -m "not live" tests

live: $(READY)  ## tests that start a real engine of a tiny model on the CPU: minutes each
	TORCH_COMPILE_DISABLE=1 $(BIN)/python -m pytest -m live tests/live

notebooks: $(READY)
	$(BIN)/python -m pytest --nbval-lax --nbval-current-env -o timeout=$(NOTEBOOK_CELL_S) \
	  --nbval-cell-timeout=$(NOTEBOOK_CELL_S) notebooks

lab: $(READY)  ## open JupyterLab on the notebooks
	$(BIN)/jupyter lab notebooks

clean:  ## remove results, report, stored runs and caches
	rm -rf artifact/results artifact/report artifact/runs .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find vamp tests notebooks tools \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

distclean: clean  ## also remove .venv
	rm -rf .venv *.egg-info
