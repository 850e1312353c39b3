# Everything here works on a machine that has only python3 (3.11 or newer), pip and make.
# SHELL stays /bin/sh: no bash needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
# An uv on PATH is used as it is; else one is put into .boot (pip --target also works where pip refuses plain installs).
UV := $(shell command -v uv 2>/dev/null || echo .boot/bin/uv)
# What mypy reads; the benchmarks as soon as there are any.
CODE := src tests $(wildcard bench)

# The machine's own Python is used; uv must not fetch one.
export UV_PYTHON_DOWNLOADS := never
# A caller's active environment must not be mistaken for ours.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME
# Compiled modules halve the CPU time of every process that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test storm check bench fmt docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## build .venv from requirements.lock, with .venv/bin/penstock in it

demo: setup ## run the main job on sample data; ARGS=--exit ends after the run
	$(BIN)/penstock demo $(ARGS)

test: setup ## run the tests on both profiles, within their CPU budget; ARGS=... runs pytest with these arguments instead
ifeq ($(strip $(ARGS)),)
	$(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder -m "not storm" --cpu-budget
else
	$(BIN)/python -m pytest $(ARGS)
endif

storm: setup ## run what takes longer: kills and outages under load, real models, large files
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m storm $(ARGS)

check: setup ## format, lint, types, import contracts and repository rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/checks

bench: setup ## run the benchmarks; ARGS goes to them
	$(BIN)/python -m bench $(ARGS)

fmt: setup ## format, and fix what lint can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## print the reference pages that the code knows
	$(BIN)/python -m tests.checks.print_reference

lock: $(UV) ## write requirements.lock anew from pyproject.toml; ARGS=--upgrade takes newer versions
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --quiet --output-file requirements.lock $(ARGS)
	@! grep -nE '://|^ *-[a-z]|--(extra-)?index|--find|^/' requirements.lock || { echo "requirements.lock names an address"; exit 1; }

clean: ## remove .venv, .boot, caches and build output
	rm -rf $(VENV) .boot build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so a set-up that was cut short is done again. A .venv that still runs is only brought up to date.
$(STAMP): pyproject.toml requirements.lock | $(UV)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "penstock needs Python 3.11 or newer, this is " + sys.version)'
	$(BIN)/python -c '' 2>/dev/null || { rm -rf $(VENV) && $(UV) venv --quiet --python "$$(command -v $(PYTHON))" $(VENV); }
	$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.boot/bin/uv:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target .boot uv
