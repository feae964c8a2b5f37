# Everything that a fresh machine needs is made here: Python 3.10 to 3.13 and make are enough.
PYTHON ?= python3
BIN := .venv/bin
# Two installations: what a run needs, and that with the tools of development.
RUNS := .venv/.runs
STAMP := .venv/.installed
# What tests take from npm, which writes this file last. It may be missing: they are skipped then.
NPM := tools/web/node_modules/.package-lock.json
PYTEST := $(BIN)/python -m pytest
# How many processes the tests are spread over; each runs models of its own.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo broken unit test pytest e2e container nightly lint format golden docs docs-site bench compat clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(RUNS): pyproject.toml engines/pyproject.toml constraints.txt tools/install.py
	@$(PYTHON) -m venv .venv
	@$(BIN)/python tools/install.py run
	@touch $@

$(STAMP): pyproject.toml engines/pyproject.toml constraints.txt tools/install.py
	@$(PYTHON) -m venv .venv
	@$(BIN)/python tools/install.py dev
	@touch $(RUNS) $@

$(NPM): tools/web/package.json tools/web/package-lock.json | $(STAMP)
	@$(BIN)/python tools/install.py npm

demo: $(RUNS) ## verify the models in examples/
	@echo "each model is built, exported, run by PyTorch and by ONNX Runtime, and compared:"
	$(BIN)/onnx-gate run --manifest examples/onnx-gate.yml

broken: $(RUNS) ## verify examples/broken/: every one of them must be caught
	! $(BIN)/onnx-gate run --manifest examples/broken/onnx-gate.yml

unit: $(STAMP) ## the tests without torch, models and processes
	$(PYTEST) --unit -n $(WORKERS) -m "not slow and not process and not container and not nightly"

test: lint pytest ## lint, types and all tests but those of containers: minutes

pytest: $(STAMP) $(NPM) ## all tests but those of containers
	$(PYTEST) -n $(WORKERS)

e2e: $(STAMP) ## the tests that run whole manifests, and those of containers
	$(PYTEST) -n $(WORKERS) tests/e2e tests/findings tests/cache
	$(MAKE) container

container: $(STAMP) ## the tests of the action: build the image, run it, run workflows (needs docker)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt -e .[container]
	$(PYTEST) -m container tests/action

nightly: $(STAMP) ## the tests that take hours: files that differ from their models, beside ones that do not
	$(PYTEST) -n $(WORKERS) -m nightly

lint: $(STAMP) ## ruff, the floors of the architecture, mypy (strict on the product, milder beside it)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy
	$(BIN)/mypy conftest.py tests engines/tests tools benchmarks

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(STAMP) ## write the golden files of the tests anew; read the difference before you commit it
	$(PYTEST) -q --unit --update-golden tests/report

docs: $(STAMP) ## write the generated pages and schemas anew
	$(BIN)/python -m tools.generate

docs-site: $(STAMP) ## the pages of docs/ as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(STAMP) ## the benchmarks that need no other package
	$(BIN)/python benchmarks/cost/compare.py

compat: $(STAMP) ## examples and unit tests with the oldest and the newest versions: many minutes
	$(BIN)/python benchmarks/compat/versions.py --save

clean: ## remove the virtual environment and what runs leave
	rm -rf .venv .compat onnx-gate-report build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
