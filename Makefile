# Every command a person needs. `make` alone lists them.
# Needs: make, Python 3.11 or newer with venv. All else comes from constraints.txt into .venv/.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
SHELL := /bin/sh

# The first interpreter that runs and is new enough; `make PYTHON=/path/to/python install` overrides.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_QUIET := --quiet --disable-pip-version-check
# The lock is the whole resolution, and pip resolves nothing: an extra that some package asks for would otherwise be
# looked up anew, and a release newer than the pinned one found. What it lacks, `pip check` tells afterwards.
LOCKED := --no-deps --require-hashes
# One resolution for every platform and Python from 3.11 on, with the hashes of all files of a release.
# Local wheel folders stay out of it: their hashes would hold on this machine alone.
LOCK := env -u UV_FIND_LINKS $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-emit-index-url --custom-compile-command "make lock"

# Further words for the command behind a target: make test ARGS="tests/unit -k naming"
ARGS ?=

.PHONY: help
help: ## list these targets
	@echo "stepplane: make TARGET [ARGS=...] [PYTHON=...]"
	@awk -F ':[^#]*## ' '/^[a-z]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(STAMP) ## make .venv/ and install what constraints.txt pins, when that changed

# .data/ is git-ignored and stays between two runs. The path is relative, so that the project's folder may have any name.
.PHONY: run
run: $(STAMP) ## start the server, run a demo pipeline on it, print its URLs, serve until Ctrl-C
	@mkdir -p .data
	STEPPLANE_DATABASE_URL="$${STEPPLANE_DATABASE_URL:-sqlite:///.data/stepplane.db}" $(BIN)/stepplane demo $(ARGS)

.PHONY: test
test: $(STAMP) ## all tests with the coverage gate; PostgreSQL too when TEST_DATABASE_URL is set
	@if [ -n "$$TEST_DATABASE_URL" ]; then echo "databases: SQLite and PostgreSQL (TEST_DATABASE_URL)"; \
	else echo "databases: SQLite (set TEST_DATABASE_URL=postgresql+asyncpg://... for PostgreSQL as well)"; fi
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --cov --cov-report=term $(ARGS)

.PHONY: check
check: $(STAMP) ## lint, format, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: screenshots
screenshots: $(STAMP) ## take docs/screenshots/ anew with the system's Chromium
	$(BIN)/python -m tests.browser.screenshots

.PHONY: bench
bench: $(STAMP) ## what reads and submits cost, as ratios to baselines, under 8 minutes; bench-quick: under 90 s
	$(BIN)/python -m bench $(ARGS)

.PHONY: bench-quick
bench-quick: $(STAMP)
	$(BIN)/python -m bench --quick $(ARGS)

.PHONY: fmt
fmt: $(STAMP) ## format, and fix what the linter can
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

.PHONY: lock
lock: ## pin anew: constraints.txt (all) and constraints-runtime.txt (the part that the Docker image needs)
	test -x $(BIN)/uv || $(MAKE) $(VENV)/.locked
	$(LOCK) --upgrade --extra dev --output-file constraints.txt
	$(LOCK) --constraints constraints.txt --extra build --output-file constraints-runtime.txt

.PHONY: clean
clean: ## remove .venv/, caches and build output; keeps .data/
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache
	find app migrations tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Two steps, so that an edit of pyproject.toml costs a second and only a new lock costs a fresh .venv/.
# `pip check` refuses a pyproject.toml that asks for more than the lock has: run `make lock` then.
$(STAMP): pyproject.toml $(VENV)/.locked
	$(BIN)/python -m pip install $(PIP_QUIET) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	@touch $@

$(VENV)/.locked: constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "stepplane needs Python 3.11 or newer; found: $$(python3 --version 2>/dev/null || echo no python3)." >&2; \
		echo "Debian, Ubuntu: apt-get install python3 python3-venv. Another one: make PYTHON=/path/to/python3.11 TARGET" >&2; \
		exit 1; fi
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$(PYTHON) cannot make a virtual environment: its module venv or ensurepip is missing." >&2; \
		echo "Debian, Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; fi
	@echo "installing into $(VENV)/: a minute or two, once"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install $(PIP_QUIET) $(LOCKED) --requirement constraints.txt
	@touch $@
