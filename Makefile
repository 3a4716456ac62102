# `make demo` and `make test` set themselves up: each creates .venv if it is missing and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The paper's data, where a checkout has it beside it; tests that need it skip where it is not.
RANKRANGE_DATA ?= $(if $(wildcard ../shared/data/README.md),$(abspath ../shared/data))
export RANKRANGE_DATA
# One BLAS thread per process: the tests run in as many processes as there are cores.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n auto
# Twice quiet: errors only, no warnings.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-warn-script-location

.PHONY: demo test test-slow lint types check clean help

help:  ## say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing what the demo needs into $(VENV) (a minute or two) ..."
	@$(PIP) -e ".[app]"
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "installing what the tests need into $(VENV) (some minutes) ..."
	@$(PIP) -e ".[all]"
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## audit digits with planted errors; writes a report to look at
	@$(BIN)/python -m rankrange demo

test: $(VENV)/.test  ## run the tests
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(VENV)/.test  ## run the slow tests too
	$(PYTEST) $(ARGS)

lint: $(VENV)/.test  ## check the style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test  ## check the types
	$(BIN)/mypy

check: test lint types  ## all that CI runs

clean:  ## remove what these commands made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis rankrange-demo.html
