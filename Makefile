# Everything that a fresh machine needs is made here: Python 3.10 to 3.13 and make are enough.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo broken test quick container lint format docs bench clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt tools/install.py
	$(PYTHON) -m venv .venv
	$(BIN)/python tools/install.py
	@touch $@

demo: $(STAMP) ## verify the models in examples/
	$(BIN)/onnx-gate run --manifest examples/onnx-gate.yml

broken: $(STAMP) ## verify examples/broken/: every one of them must be caught
	! $(BIN)/onnx-gate run --manifest examples/broken/onnx-gate.yml

test: lint ## lint, types and all tests
	$(BIN)/python -m pytest

quick: $(STAMP) ## the tests that take seconds
	$(BIN)/python -m pytest -m "not slow"

container: $(STAMP) ## the tests of the action: build the image, run it, run workflows (needs docker)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt -e .[container]
	$(BIN)/python -m pytest -m container tests/action

lint: $(STAMP) ## ruff, ruff format, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## write the generated pages and schemas anew
	$(BIN)/python -m tools.generate

bench: $(STAMP) ## the benchmarks that need no other package
	$(BIN)/python benchmarks/compare.py

clean: ## remove the virtual environment and what runs leave
	rm -rf .venv onnx-gate-report build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
