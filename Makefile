# The one task runner: every target works on a fresh machine that has python3 (3.11 or newer), its venv module and make.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
BARE := build/wheel-check

.DEFAULT_GOAL := help
.PHONY: help demo test crash lint types bench wheel clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"python 3.11 or newer is needed, this is {sys.version.split()[0]}: set PYTHON=")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cli,openai,test,dev]'
	@touch $@

demo: $(STAMP)  ## the main job in a minute, offline
	$(BIN)/savepoint demo

test: $(STAMP)  ## the whole suite (ARGS="-k name" narrows it)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

crash: $(STAMP)  ## every kill and every fault, one report (hours; ARGS="--parts programs")
	@mkdir -p build
	$(BIN)/python tests/crash/everything.py --json build/crash.json --junit build/crash.xml $(ARGS)

lint: $(STAMP)  ## style, format, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(STAMP)  ## basedpyright, strict
	$(BIN)/basedpyright

bench: $(STAMP)  ## speed against the raw floor (ARGS="--json" for scripts)
	$(BIN)/python bench/run.py $(ARGS)

# The wheel is tried where a user meets it: an empty environment, first without extras, then with the command line.
wheel: $(STAMP)  ## build the wheel and try it in an empty environment
	rm -rf dist $(BARE)
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .
	$(PYTHON) -m venv $(BARE)
	$(BARE)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd $(BARE) && bin/python -W error -c 'import effects, savepoint, agent'
	@cd $(BARE) && bin/savepoint demo >bare.out 2>bare.err </dev/null; code=$$?; cat bare.err; \
	  test $$code -eq 2 && grep -qF 'portable-savepoints[cli]' bare.err \
	  || { echo "without the extra, savepoint must exit 2 and name portable-savepoints[cli]; it exited $$code" >&2; exit 1; }
	$(BARE)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(echo dist/*.whl)[cli]"
	cd $(BARE) && bin/savepoint --version

clean:  ## remove all that was made here
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
