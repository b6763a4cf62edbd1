# make demo: the whole life of a model on built-in text; make test: every test but those for a GPU and of faults. Both make .venv when it is missing.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test test-faults test-gpu docs lint clean

demo: $(INSTALLED)
	rm -rf runs/demo
	$(BIN)/python -m hornbook.demo runs/demo

# Compiled files are kept, wherever the environment says not to: else every process compiles the tests again.
test: $(INSTALLED) lint
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal -m "not gpu and not faults"

# Crashes, full disks, signals, damaged files, two writers: about 20 minutes on two cores.
test-faults: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 -m faults

# Needs CUDA; PYTHON may be one that already has torch and the rest.
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest tests/gpu -m gpu

# The documentation as a site in build/site, without a network; python -m http.server -d build/site shows it with its search.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: $(INSTALLED)
	$(BIN)/ruff check src tests benchmarks docs/site.py
	$(BIN)/ruff format --check src tests benchmarks docs/site.py

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@

clean:
	rm -rf .venv runs
