# make quickstart: environment, training on synthesised words, evaluation at two rates.   make test: environment, all tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: quickstart test lint clean

quickstart: $(VENV)/.installed-synth
	$(BIN)/kws-train quickstart --overwrite
	$(BIN)/kws-eval runs/quickstart

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kws_s5 needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
