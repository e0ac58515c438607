# `make help` lists the targets. Nothing is needed but make and Python 3.11 or newer with venv.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
CHAOS  ?=
SECONDS ?= 60
MINUTES ?= 10
# Processes that run tests: four on two cores, as many tests wait for a third of their time.
JOBS    ?= 4

# Tests start a thousand interpreters, which would compile all modules each.
unexport PYTHONDONTWRITEBYTECODE

# A trace of 12 seconds, with Sparrow and with random placement.
DEMO := docs/examples/tpch-10-nodes.jsonl --nodes 10 --slots 4 --schedulers 2 --placement sparrow,random \
	--report demo-report

PY := $(VENV)/bin/python
# In an environment that is ours to remove: any other is somebody else's.
MARK := $(VENV)/.made-for-sparrow-py
PIP_INSTALL := $(PY) -m pip install -qq --disable-pip-version-check --editable


MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-rest confidence explore faults fuzz soak lint lock docs bench clean

help:  ## list the targets
	@echo "usage: make TARGET [ARGS='...'] [PYTHON=python3] [VENV=.venv]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 13

demo: $(VENV)/.demo  ## replay TPC-H-like queries on an embedded cluster (CHAOS=1: a job whose daemons are killed)
	@$(PY) -m $(if $(CHAOS),frontends.demo --chaos,loadgen run $(DEMO)) $(ARGS)

PYTEST = @$(PY) -m pytest -n $(JOBS)

test: $(VENV)/.dev  ## run the tests (ARGS='-k name' selects some; JOBS=0 without further processes, for a debugger)
	$(PYTEST) --suite test $(ARGS)

test-quick: $(VENV)/.dev  ## run those of the tests that start no process: cores, queues, messages
	$(PYTEST) --suite quick $(ARGS)

test-rest: $(VENV)/.dev  ## run what `make test` leaves out: more rows, more examples, more data
	$(PYTEST) --suite rest $(ARGS)

confidence: $(VENV)/.dev  ## try the paper's claims with several seeds, and note that they hold
	$(PYTEST) --suite confidence
	@$(PY) -m tests.paper.confident

explore: $(VENV)/.dev  ## try properties with new random examples (ARGS='-k name' selects some)
	$(PYTEST) --suite all -m hypothesis --hypothesis-profile explore $(ARGS)

# A report of its own each time: the tables have the rows of one run.
faults: $(VENV)/.dev  ## play the whole fault matrix, and write its tables into docs/reliability.md
	@report=$$(mktemp) && \
		$(PY) -m pytest tests/faults/test_matrix.py --faults=all --faults-report="$$report" $(ARGS) && \
		$(PY) -m tests.faults.table "$$report"; status=$$?; rm -f "$$report"; exit $$status

fuzz: $(VENV)/.dev  ## try made-up input on parsers, links and HTTP (SECONDS=60 in all; a failure says its seed)
	@$(PY) -m pytest tests/fuzz --fuzz-seconds $(SECONDS) --timeout 0 $(ARGS)

lint: $(VENV)/.dev  ## style, formatting, types, import rules
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/lint-imports --no-logo --config .circles.toml

# With the hashes of all files of each version, and without the places where these are to be had.
LOCK := $(VENV)/bin/pip-compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --no-emit-options --strip-extras --allow-unsafe

lock: $(VENV)/.dev  ## pin what deployments install, with hashes, in requirements/ (ARGS=--upgrade for the newest)
	@$(LOCK) $(ARGS) --output-file requirements/daemons.txt pyproject.toml
	@$(LOCK) $(ARGS) --extra sql --output-file requirements/sql.txt pyproject.toml
	@$(LOCK) $(ARGS) --extra flow --output-file requirements/flow.txt pyproject.toml
	@$(LOCK) $(ARGS) --extra workflow --output-file requirements/workflow.txt pyproject.toml
	@$(LOCK) $(ARGS) --extra docs --output-file requirements/docs.txt pyproject.toml

docs: $(VENV)/.dev  ## build the documentation site in site/; a link that leads nowhere is an error
	@$(PY) -m docs.site.source build/docs
	@$(VENV)/bin/zensical build --strict --clean

bench: $(VENV)/.dev  ## run every benchmark (ARGS='--only latency' for one, --json for objects, --results FILE keeps them)
	@$(PY) -m benchmarks.all $(ARGS)

soak: $(VENV)/.dev  ## a cluster of real processes in which everything fails (MINUTES=10 ARGS='--seed 7')
	@$(PY) -m benchmarks.soak --minutes $(MINUTES) $(ARGS)

clean:  ## remove the environment, caches and build products
	@if [ -e $(MARK) ] || [ -e $(VENV)/.created ]; then rm -rf $(VENV); \
		elif [ -e $(VENV) ]; then echo "$(VENV) stays: it was not made here"; fi
	@rm -rf build dist site demo-report .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- set-up: a virtual environment, what the product needs, what its developers need ---------

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || \
		{ echo "error: Python 3.11 or newer is needed, and $(PYTHON) is $$($(PYTHON) --version 2>&1 | tail -n 1); name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' >/dev/null 2>&1 || \
		{ echo "error: $(PYTHON) lacks the venv module; install it (on Debian and Ubuntu the package python3-venv)" >&2; exit 1; }
	@if [ -e $(VENV) ] && [ ! -e $(MARK) ] && [ -n "$$(ls -A $(VENV))" ]; then \
		echo "error: $(VENV) is there, was not made here, and is left alone; name another: make VENV=.venv-sparrow" >&2; exit 1; fi
	@echo "setting up $(VENV) (once)"
	@rm -rf $(VENV) && mkdir -p $(VENV) && touch $(MARK)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.created
	@$(PIP_INSTALL) '.[loadgen]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.created
	@$(PIP_INSTALL) '.[dev]'
	@touch $(VENV)/.demo $@
