# make run    the benchmark of the sample
# make test   lint, types, tests
# make docs   the documentation as a site, in build/site
# make bench  speed and memory against other libraries, written to tests/bench/RESULTS.md
# make bench-large  millions of chunks, written to tests/bench/RESULTS-large.md
# Each installs into .venv first if pyproject.toml or constraints.txt changed.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# More than the two cores of CI: many tests wait for a server.
WORKERS ?= 4
# Let the processes that tests start share compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help run test lint types docs bench bench-large clean

help:
	@sed -n 's/^# //p' Makefile | head -6

run: .venv/.ready
	$(BIN)/rag-eval run

# Types are checked beside the tests; the result is printed at the end.
test: lint
	@types=$$(mktemp); $(BIN)/mypy >$$types 2>&1 & checked=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder; tested=$$?; \
	wait $$checked; typed=$$?; cat $$types; rm $$types; test $$tested = 0 -a $$typed = 0

lint: .venv/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.ready-dev
	$(BIN)/mypy

docs: .venv/.ready-docs
	$(BIN)/python docs/site.py
	@echo 'Open build/site/index.html; it needs no server.'

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "rag-eval needs Python 3.11 or later: install it, or name it with make PYTHON=…"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.ready: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Installing rag-eval and its dependencies into .venv; the first time takes a minute or two.'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

.venv/.ready-%: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Installing rag-eval and its dependencies into .venv; the first time takes a minute or two.'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$*]'
	@touch $@ .venv/.ready

bench: .venv/.ready-bench
	$(BIN)/python -m tests.bench.run

bench-large: .venv/.ready-bench
	$(BIN)/python -m tests.bench.large

clean:
	rm -rf .venv .rag-eval build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
