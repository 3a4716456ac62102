# `make demo` and `make test` set themselves up: each creates .venv if it is missing and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The paper's data, where a checkout has it beside it; tests that need it skip where it is not.
RANKRANGE_DATA ?= $(if $(wildcard ../shared/data/README.md),$(abspath ../shared/data))
export RANKRANGE_DATA
# One BLAS thread per process: the tests run in as many processes as there are cores. Threads of OpenMP that wait do not spin. Each process runs the tests of a
# file one after the other, so that they share their fixtures, and takes some of the others when its own are done.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal
# Twice quiet: errors only, no warnings. The constraints say which version of PyTorch is installed.
CONSTRAINTS := .ci/constraints.txt
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-warn-script-location -c $(CONSTRAINTS)

.PHONY: demo reproduce test mutants test-slow test-oldest lint types check docs docs-check release-check works-with integrations clean help

help:  ## say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "installing what the demo needs into $(VENV) (a minute or two) ..."
	@$(PIP) -e ".[app]"
	@touch $@

$(VENV)/.test: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "installing what the tests need into $(VENV) (some minutes) ..."
	@$(PIP) -e ".[all]"
	@touch $@ $(VENV)/.demo

$(VENV)/.works-with: $(VENV)/.test
	@echo "installing the packages that rankrange works with into $(VENV) (a minute) ..."
	@$(PIP) -e ".[works-with]"
	@touch $@

works-with: $(VENV)/.works-with  ## install other packages whose recipes the tests then run; without them these are skipped

# The trainers that the losses are tested with, at the versions that were run.
TRAINERS := transformers==5.23.0 accelerate==1.15.0 lightning==2.6.6 trl==1.16.0 datasets==5.2.0

$(VENV)/.integrations: $(VENV)/.works-with
	@echo "installing trainers into $(VENV) (a minute) ..."
	@$(PIP) $(TRAINERS)
	@touch $@

integrations: $(VENV)/.integrations  ## run the tests of the losses in real trainers
	$(PYTEST) tests/pytorch/test_torch_callbacks.py tests/pytorch/test_torch_trainers.py tests/docs/test_works_with.py $(ARGS)

demo: $(VENV)/.demo  ## audit digits with planted errors; writes a report to look at
	@$(BIN)/python -m rankrange demo

reproduce: $(VENV)/.test  ## repeat the paper's experiments, for example ARGS='binary --protocol held-out' (reproduction/README.md)
	$(BIN)/python -m reproduction.run $(ARGS)

test: $(VENV)/.test  ## run the tests
	$(PYTEST) -m "not slow and not site" $(ARGS)

mutants: $(VENV)/.test  ## plant small faults and list those that no test notices, for example ARGS='--seed 1 --count 10'
	$(BIN)/python tests/mutants.py $(ARGS)

test-slow: $(VENV)/.test  ## run the slow tests too, and the random ones with five times as many cases
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "not site" $(ARGS)

# What the oldest versions could break: arrays, estimators, tables, files. Python 3.11, because newer ones have no such wheels.
OLDEST_PYTHON ?= python3.11
OLDEST_TESTS := tests/core/test_ranges.py tests/core/test_select.py tests/test_metrics.py tests/test_noise.py tests/test_risk.py \
	tests/estimators/test_linear.py tests/tables/test_formats.py tests/shards/test_scan.py

$(VENV)-oldest/.ready: tests/oldest.txt
	@$(OLDEST_PYTHON) -m venv $(VENV)-oldest
	@echo "installing the oldest versions into $(VENV)-oldest (a minute or two) ..."
	@$(VENV)-oldest/bin/python -m pip install -qq --disable-pip-version-check -r tests/oldest.txt \
		pytest pytest-xdist hypothesis mpmath polars "pyparsing<3.2"  # newer ones make matplotlib 3.8 warn
	@$(VENV)-oldest/bin/python -m pip install -qq --disable-pip-version-check --no-deps -e .
	@touch $@

test-oldest: $(VENV)-oldest/.ready  ## run a part of the tests with the oldest versions of what the package needs
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)-oldest/bin/python -m pytest -n auto -m "not slow" $(OLDEST_TESTS) $(ARGS)

lint: $(VENV)/.test  ## check the style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test  ## check the types
	$(BIN)/mypy

check: test lint types  ## all that CI runs

$(VENV)/.docs: pyproject.toml $(CONSTRAINTS) $(VENV)/.demo | $(BIN)/python
	@echo "installing what the site needs into $(VENV) (some minutes) ..."
	@$(PIP) -e ".[docs]"
	@touch $@

docs: $(VENV)/.docs  ## build the site into docs/_build/html
	$(BIN)/python docs/build.py

docs-check: $(VENV)/.docs $(VENV)/.test  ## run the code of README, pages and gallery; look at the built site and an audit's page: links, search, accessibility
	@command -v npm >/dev/null && npm install --silent --no-save --prefix $(VENV)/npm axe-core@4 || echo "no npm: axe-core is left out"
	$(PYTEST) -m site tests/docs $(ARGS)
	$(BIN)/python -m pytest tests/audit/test_review.py::test_axe_finds_no_serious_fault $(ARGS)

release-check: $(VENV)/.demo  ## build wheel and sdist, check them, install the wheel into an empty environment, run the demo
	@$(PIP) build twine check-wheel-contents
	$(BIN)/python docs/release_check.py

clean:  ## remove what these commands made
	rm -rf $(VENV) $(VENV)-oldest .pytest_cache .mypy_cache .ruff_cache .hypothesis dist docs/_build docs/gallery \
		docs/api/generated docs/benchmarks/generated rankrange-demo.html
