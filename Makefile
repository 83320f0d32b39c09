# A clone needs Python 3.11 or newer, and make; packages come from where pip is configured to take them.
PYTHON ?= python3
# Twice the processors of a small machine: half of the time of long tests is waiting.
WORKERS ?= 4

BIN := .venv/bin
INSTALL := $(BIN)/python .ci/install.py
WHEEL_PIP := build/wheel/bin/python -m pip --quiet --disable-pip-version-check
COMPILE := build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-strip-extras --no-emit-index-url \
	--custom-compile-command "make lock"

# Tests start hundreds of processes, each of which would compile all that it imports for a second.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo fleet test long lint audit check bench format reference docs lock dist release interop clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile

install: .venv/.run ## set up .venv with what a run needs
	@echo "installed; next:  . $(BIN)/activate  and then:  aegish-dist init"

demo: .venv/.run ## one run without a key, from the bundled dataset to the report
	$(BIN)/aegish-dist demo

fleet: ## PostgreSQL, Redis, four workers and a simulated provider, by Docker Compose
	@$(PYTHON) .ci/fleet.py

test: .venv/.dev ## the tests that a person waits for: every tier, five minutes on two cores
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not long"

long: .venv/.dev ## the others: drills, browsers, how-to pages, whole fleets
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m long

lint: .venv/.dev ## format, style, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@mkdir -p build
	$(BIN)/bandit --quiet --recursive aegish_dist workers 2>build/bandit.log || { cat build/bandit.log; exit 1; }

audit: .venv/.dev ## known vulnerabilities of the packages that users get
	$(BIN)/python .ci/audit.py $(AUDIT)

check: AUDIT = --offline-too
check: test lint audit long ## all that has to pass

bench: .venv/.dev ## the quick benchmarks, on this machine; the long ones: benchmarks/*.py --help
	$(BIN)/python benchmarks/startup.py --repeats 3
	$(BIN)/python benchmarks/worker.py
	$(BIN)/python benchmarks/scaling.py --quick
	$(BIN)/python benchmarks/isolation.py --quick
	$(BIN)/python benchmarks/inspect_ai_peer.py --quick
	$(BIN)/python benchmarks/limiter.py acquire

format: .venv/.dev ## bring the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: .venv/.dev ## write the docs pages of commands and settings from the program
	$(BIN)/python .ci/reference.py

docs: .venv/.dev ## build the docs as a site: python3 -m http.server -d site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lock: ## pin the newest dependencies that pyproject.toml allows
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip --quiet --disable-pip-version-check install --require-hashes -r requirements/uv.txt
	$(COMPILE) --extra frames --extra otel --extra parquet --extra plots -o requirements/run.txt pyproject.toml
	$(COMPILE) --extra frames --extra otel --extra parquet --extra plots --group dev -c requirements/run.txt -o requirements/dev.txt pyproject.toml
	echo uv | $(COMPILE) -o requirements/uv.txt -
	printf '%s\n' hatchling editables | $(COMPILE) -c requirements/dev.txt -o requirements/build.txt -
	printf '%s\n' inspect-ai==0.3.285 openai==3.52.0 | $(COMPILE) -o requirements/inspect.txt -

dist: .venv/.dev ## build the wheel, and run the demo from it in an environment of its own
	rm -rf dist build/wheel
	$(BIN)/python -m hatchling build
	$(PYTHON) -m venv build/wheel
	$(WHEEL_PIP) install --require-hashes -r requirements/run.txt
	$(WHEEL_PIP) install --no-deps dist/*.whl
	cd build/wheel && AEGISH_DIST_HOME=$(CURDIR)/build/wheel/home bin/aegish-dist demo

release: check dist ## check that this commit can be released, and say how to tag it
	$(BIN)/python .ci/release.py

interop: .venv/.dev ## open exported logs with the oldest and newest Inspect AI supported
	$(BIN)/python .ci/interop.py

clean: ## remove what the other targets made
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A working tree has no hash: the pinned packages come first, the project without its own.
.venv/.run: requirements/run.txt requirements/build.txt requirements/uv.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@echo "Installing into .venv, once"
	@echo "  an environment"
	@$(PYTHON) -m venv .venv
	@$(INSTALL) "what a run needs" requirements/run.txt requirements/build.txt
	@$(INSTALL) "aegish-dist itself" -e .
	@touch $@

.venv/.dev: requirements/dev.txt requirements/helm.txt .venv/.run
	@$(INSTALL) "what tests and docs need" requirements/dev.txt
	@echo "  helm"
	@$(BIN)/python .ci/helm.py $(BIN)/helm
	@touch $@
