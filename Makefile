# quickstart and test are all that a new checkout needs; both set up .venv themselves.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# Without byte code, most of which no run ever loads: what is imported is compiled then.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --no-compile --quiet --constraint constraints.txt
# Longest first: the packages are installed without build isolation, in an environment that holds setuptools.
PACKAGES := . operator_packs/tilebench-operators backends/tilebench-triton backends/tilebench-cutile backends/tilebench-tilelang
WORKERS ?= 2

.PHONY: quickstart dev check lint types test test-gpu bench clean

# The main job on this machine, GPU or not: three operators on every backend, then a table.
quickstart: $(VENV)/.user
	$(BIN)/tilebench run experiment=quickstart
	@echo "More: $(BIN)/tilebench list · $(BIN)/tilebench report quickstart · $(BIN)/tilebench ui"

$(VENV)/.user: pyproject.toml constraints.txt $(wildcard */*/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) 'setuptools>=77' wheel
	$(PIP) --no-build-isolation $(addprefix -e ./,$(PACKAGES))
	@if [ -e /proc/driver/nvidia/version ]; then $(PIP) --no-build-isolation -e '.[gpu]'; fi
	touch $@

dev: $(VENV)/.dev

$(VENV)/.dev: $(VENV)/.user
	$(PIP) --no-build-isolation -e '.[dev]'
	touch $@

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: dev
	$(BIN)/mypy

check: lint types
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not gpu"

test: check

# On a machine with an NVIDIA GPU; a skipped test is a failure there.
test-gpu: dev
	$(BIN)/python -m pytest -m gpu --fail-on-skip

bench: dev
	$(BIN)/python benchmarks/framework.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
	find . -name '*.egg-info' -prune -exec rm -rf {} +
	find . -name __pycache__ -prune -exec rm -rf {} +
