# Everything starts here; `make` alone lists the targets. The first one used sets up .venv from
# requirements.lock, with nothing but Python 3.11+ and Java 17+ on the machine.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help surroundings setup demo test soak soak-service check format docs bench lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup  ## a shop with live traffic, the service, a proof (DEMO_SECONDS=30 ends by itself)
	@$(BIN)/millstream demo

test: setup  ## the whole suite, on every PostgreSQL at hand (ARGS="tests/cli -x" for a part of it)
	@$(BIN)/python scripts/test $(ARGS)

soak: setup  ## 20,000 cases of the law on random queries, and SQLsmith's, from another seed each time (MILLSTREAM_TEST_LAW_SEED=7 for one)
	@MILLSTREAM_TEST_LAW_ROUNDS=$${MILLSTREAM_TEST_LAW_ROUNDS:-20} MILLSTREAM_TEST_LAW_SEED=$${MILLSTREAM_TEST_LAW_SEED:-random} \
	  MILLSTREAM_TEST_SQLSMITH=$${MILLSTREAM_TEST_SQLSMITH:-1500} MILLSTREAM_TEST_APPLICATION=all \
	  $(BIN)/python -m pytest -s --timeout 36000 tests/law/test_random.py tests/law/test_application.py tests/law/test_sqlsmith.py

soak-service: setup  ## the service under faults and load for an hour (SECONDS=600 for another time)
	@MILLSTREAM_TEST_SERVICE_SECONDS=$(or $(SECONDS),3600) $(BIN)/python -m pytest -s tests/service/run/test_soak.py

check: setup  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## let ruff order the imports and lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## print docs/reference/ from the code
	$(BIN)/python -m docs.generate

bench: setup  ## the benchmarks (BENCH=refresh_floor for one of them)
	@set -e; for each in $(or $(BENCH:%=bench/%.py),$$(grep -l __main__ bench/*.py)); do \
	  echo "== $$each"; $(BIN)/python $$each; done

lock: surroundings  ## resolve pyproject.toml anew and write requirements.lock
	@PYTHON=$(PYTHON) scripts/lock

clean:  ## remove .venv and everything else that was made
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

surroundings:
	@PYTHON=$(PYTHON) scripts/surroundings

setup: surroundings $(READY)

$(READY): requirements.lock pyproject.toml
	@echo "Setting up $(VENV): some minutes the first time, Spark alone is 400 MB."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --quiet --requirement requirements.lock
	@$(PIP) install --quiet --quiet --no-deps --no-build-isolation --editable .
	@touch $(READY)
