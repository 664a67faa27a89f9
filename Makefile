# Development entry points. `make demo` and `make test` need nothing but python3 (3.11+) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Files are shared out among processes, in the order of tests/conftest.py; each has a stack of its own
# where it needs one.
PARALLEL ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
SLOWEST ?= --durations=40

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-apache chaos simulate soak docs lint lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

setup: $(STAMP) ## make .venv with the service, the client and the development tools

$(STAMP): constraints.txt pyproject.toml client/pyproject.toml deploy/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh deploy/setup.sh
	@touch $@

demo: setup ## run the whole pipeline on real parts; writes demo-report.html [TRACES=file] [ARGS=...]
	@$(BIN)/headstart demo --html demo-report.html $(if $(TRACES),--traces $(TRACES)) $(ARGS)

# Compiled first: workers would each wait for it, and compile at the side of what is tested.
test: setup lint ## lint, types, import rules and every test, on every core
	@$(BIN)/python -m kernels.loader
	@$(BIN)/python -m pytest $(PARALLEL) $(SLOWEST) $(ARGS)

test-apache: setup ## the integration suite on Apache Kafka itself (needs Java 17 and Maven)
	@$(BIN)/python -m kernels.loader
	@TEST_KAFKA=apache $(BIN)/python -m pytest $(PARALLEL) $(SLOWEST) tests/integration $(ARGS)

chaos: setup ## real faults on Apache Kafka, then the checker [ROUNDS=n] [ARGS="--seconds 60"]
	@$(BIN)/python -m tests.chaos --rounds $(or $(ROUNDS),3) $(ARGS)

simulate: setup ## ten thousand simulated schedules of faults, always the same [SCHEDULES=10000]
	@$(BIN)/python -m tests.simulation --schedules $(or $(SCHEDULES),10000)

soak: setup ## run simulated faults on fresh seeds, and print failing ones [SECONDS=600]
	@$(BIN)/python -m tests.simulation --seconds $(or $(SECONDS),600)

docs: setup ## write docs/reference from the code
	@$(BIN)/python -m docs.generate

lint: setup ## ruff, mypy and import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

lock: ## resolve constraints.txt anew (needs uv: pip install uv)
	@mkdir -p .lock && sed '/^  "headstart",$$/d' pyproject.toml > .lock/pyproject.toml
	uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
	  --python-version 3.11 --all-extras .lock/pyproject.toml client/pyproject.toml \
	  -o constraints.txt
	@rm -r .lock

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
