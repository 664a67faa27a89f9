# Development entry points. `make demo` and `make test` need nothing but python3 (3.11+) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Files are shared out among processes, in the order of tests/conftest.py; each has a stack of its own
# where it needs one. One process more than cores, at most 4: tests of a whole system wait much.
PROCESSES ?= $(shell n=$$(($$(getconf _NPROCESSORS_ONLN) + 1)); echo $$((n < 4 ? n : 4)))
PARALLEL ?= -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
SLOWEST ?= --durations=40
# Longest first. Each has an extra of the client, client/integrations/constraints-NAME.txt, and tests
# in tests_integrations/NAME, with `-` as `_`; those of mcp are in mcp_proxy.
INTEGRATIONS := mcp pydantic-ai claude-agent langchain openai-agents

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-apache test-secure test-integrations test-compose chaos chaos-cluster \
  soak-cluster simulate soak docs lint lock lock-integrations clean

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
	@$(BIN)/python -m pytest $(PARALLEL) $(SLOWEST) --ignore=tests/secure $(ARGS)

test-apache: setup ## the integration suite on Apache Kafka itself (needs Java 17 and Maven)
	@$(BIN)/python -m kernels.loader
	@TEST_KAFKA=apache $(BIN)/python -m pytest $(PARALLEL) $(SLOWEST) tests/integration $(ARGS)

# Each in a run of its own; in ARGS `{}` is its name: logins, scram or mtls. SUITE, SECURE and LOGINS
# select what is run: CI takes a part of it.
SECURE ?= scram mtls
SUITE ?= tests/integration
test-secure: setup ## logins; the integration suite on TLS with SCRAM and ACLs, then with mTLS (slow)
	@$(BIN)/python -m kernels.loader
	@$(BIN)/python -m pytest --durations=5 tests/secure $(LOGINS) $(subst {},logins,$(ARGS))
	@for mode in $(SECURE); do \
	  TEST_SECURE=$$mode $(BIN)/python -m pytest $(PARALLEL) $(SLOWEST) -rs $(SUITE) \
	    $(subst {},$$mode,$(ARGS)) || exit 1; done

# Two at a time, as most of them wait; each one's output follows its end. In ARGS `{}` is the name.
test-integrations: setup ## agent frameworks, each in an environment of its own [ONLY=langchain]
	@$(if $(ONLY),sh tests_integrations/run.sh $(ONLY) $(ARGS),printf '%s\n' $(INTEGRATIONS) | \
	  xargs -P 2 -I '{}' sh -c 'text=$$(sh tests_integrations/run.sh "$$@" 2>&1); code=$$?; \
	  printf "%s\n" "== $$1" "$$text"; exit $$code' run '{}' $(ARGS))

chaos: setup ## real faults on Apache Kafka, then the checker [ROUNDS=n] [ARGS="--seconds 60"]
	@$(BIN)/python -m tests.chaos --rounds $(or $(ROUNDS),3) $(ARGS)

chaos-cluster: setup ## the same on three brokers, each killed, paused, restarted [ROUNDS=n]
	@$(BIN)/python -m tests.chaos --brokers 3 --rounds $(or $(ROUNDS),3) $(ARGS)

soak-cluster: setup ## the same for hours; do memory and open files grow? [HOURS=1] [ARGS=...]
	@$(BIN)/python -m tests.chaos --hours $(or $(HOURS),1) $(ARGS)

test-compose: setup ## docker-compose.yml in containers, killed and restarted (needs Docker) [ARGS=...]
	@$(BIN)/python -m tests.compose $(ARGS)

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

lock: setup ## resolve constraints.txt again
	@mkdir -p .lock && sed '/^  "headstart",$$/d' pyproject.toml > .lock/pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
	  --python-version 3.11 --extra local --extra otlp --extra dev --extra compression --extra hiredis \
	  .lock/pyproject.toml client/pyproject.toml -o constraints.txt
	@rm -r .lock

# claude-agent-sdk is built from its source: its wheels hold a program of 178 MB that no test starts.
lock-integrations: setup ## resolve the environments of the integrations again [ONLY=langchain]
	@for name in $(or $(ONLY),$(INTEGRATIONS)); do \
	  $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
	    $$(if [ $$name = claude-agent ]; then echo --no-binary claude-agent-sdk --emit-build-options; fi) \
	    --python-version 3.11 --extra $$name client/pyproject.toml tests_integrations/requirements.txt \
	    -o client/integrations/constraints-$$name.txt || exit 1; done

clean: ## remove .venv and caches
	rm -rf $(VENV) .venvs .mypy_cache .ruff_cache .pytest_cache
