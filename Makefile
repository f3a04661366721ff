# Two commands do everything: `make run` and `make test`. Both set up `.venv` first if it is missing or out of date.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# The benchmarks have an environment of their own, because it also holds the libraries they are compared with.
BENCHMARK_BIN := .venv-benchmark/bin
BENCHMARK_STAMP := .venv-benchmark/.installed

DOCS_STAMP := .venv/.docs-installed

.PHONY: run test test-all lint docs wheel benchmark clean

run: $(STAMP)
	$(BIN)/hyperfan run continual --seeds 15 --resume

# Tests start many processes; bytecode is kept, whatever the environment says, so that each does not compile all anew.
# The table at their end says which tests take longest.
TEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --durations 15 --durations-min 2

test: lint
	$(TEST)

# Products of cases in full, where `make test` takes a part in which all pairs meet.
test-all: lint
	$(TEST) --full

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site in site/, opened from there or from a server; no warning, no dead link, nothing loaded from a network.
docs: $(DOCS_STAMP)
	OMP_NUM_THREADS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/site/check.py site

# Wheel and sdist in dist/, and what users do with the wheel, in an environment that has nothing else.
wheel:
	$(PYTHON) tests/wheel_check.py

benchmark: $(BENCHMARK_STAMP)
	$(BENCHMARK_BIN)/python -m benchmarks

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

$(BENCHMARK_STAMP): pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-benchmark
	$(BENCHMARK_BIN)/python -m pip install --quiet -c constraints.txt -e . -r benchmarks/requirements.txt
	touch $@

clean:
	rm -rf .venv .venv-benchmark site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
