# Odradek's commands. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := broker operator spark tests images
LEVEL ?= short
# Without bytecode caches, each of the thousands of processes that the tests start compiles every module again.
unexport PYTHONDONTWRITEBYTECODE
# More test processes than cores, because tests with real processes wait most of the time.
JOBS ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 3 )))
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# What `make test` leaves to other commands, and in the short level to a daily run.
ELSEWHERE := interop or e2e$(if $(filter full,$(LEVEL)),, or daily)

# COMPILED=1 compiles the core first and uses it, COMPILED=0 uses the interpreted one. By default, `make install` compiles
# if there is a C compiler, `make bench` always, and `make run` and `make up` use what was compiled from these sources.
COMPILE := $(BIN)/python broker/tools/compile_core.py
WITH_CORE := PYTHONPATH=$(CURDIR)/.compiled
WITH_CURRENT_CORE = $(if $(filter 0,$(COMPILED)),,if $(COMPILE) --check 2>/dev/null; then export $(WITH_CORE); fi;)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check-python
check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed: '$(PYTHON)' is missing or older. Install it, or name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)." >&2; exit 1; }

.PHONY: check-java
check-java:
	@version=$$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	  if [ -z "$$version" ] || [ "$$version" -lt 17 ]; then \
	    echo "Java 17 or newer is needed for ZooKeeper and Spark: found '$${version:-none}'. Install it and put 'java' on the PATH." >&2; exit 1; fi

$(STAMP): pyproject.toml constraints.txt | check-python
	@echo "Making the virtual environment $(VENV) (a minute or two, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

.PHONY: install
install: $(STAMP) ## Create .venv with all extras, editable; compile the data path if there is a C compiler, unless COMPILED=0
	@$(if $(filter 0,$(COMPILED)),,$(COMPILE) --if-possible)

.PHONY: compiled
compiled: $(STAMP) ## Compile the data path into .compiled/, if the sources have changed (needs a C compiler)
	@$(COMPILE)

.PHONY: run
run: check-java $(STAMP) $(if $(filter 1,$(COMPILED)),compiled) ## Run the demonstration: cluster, real events, Spark pipelines, checked result
	@$(WITH_CURRENT_CORE) $(BIN)/odradek demo

.PHONY: up
up: check-java $(STAMP) $(if $(filter 1,$(COMPILED)),compiled) ## Run a cluster of three brokers until Ctrl-C, with its data in .odradek/; COMPILED=1 for speed
	@$(WITH_CURRENT_CORE) $(BIN)/odradek up -f manifests/examples/

.PHONY: lint
lint: $(STAMP) ## Check formatting, lint rules, types, import contracts and that every test can be collected
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy
	@PYTHONPATH=broker:operator:spark $(BIN)/lint-imports
	@$(BIN)/pytest --collect-only --quiet --quiet --no-header | sed -n '/ERRORS/,$$p'; exit $${PIPESTATUS[0]}

.PHONY: test
test: check-java lint ## Run lint and all tests that need no Kubernetes, with JOBS=n processes; LEVEL=full once a day
	@$(BIN)/pytest $(PARALLEL) -m "not ($(ELSEWHERE))"

.PHONY: unit
unit: $(STAMP) ## Run only the tests that need no Java, for work in progress
	@$(BIN)/pytest $(PARALLEL) -m "not (java or $(ELSEWHERE))"

.PHONY: interop
interop: check-java $(STAMP) ## Test with Apache Kafka's tools and with clients of others (needs mvn and Go); LEVEL=full once a day
	@$(BIN)/pytest -m "interop$(if $(filter full,$(LEVEL)),, and not daily)"

.PHONY: e2e
e2e: check-java $(STAMP) ## Test on Kubernetes: the cluster of KUBECONFIG, or one built here (root, Go); LEVEL=short or full
	@$(BIN)/pytest tests/e2e tests/chart -m "$(if $(filter full,$(LEVEL)),e2e,e2e_short)" -p no:randomly

.PHONY: images
images: $(STAMP) ## Build the images with docker, podman or buildah: PREFIX=odradek ONLY=broker BASE=...
	@$(BIN)/python images/build.py $(if $(PREFIX),--prefix $(PREFIX)) $(if $(BASE),--base $(BASE)) $(if $(OUTPUT),--output $(OUTPUT)) $(foreach name,$(ONLY),--only $(name))

.PHONY: crds
crds: $(STAMP) ## Generate the resource definitions and dashboards in the chart
	@$(BIN)/python -m odradek_operator.crds.generate_crds
	@$(BIN)/python -m odradek_operator.dashboards.generate_dashboards

.PHONY: messages
messages: $(STAMP) ## Generate protocol/messages from the definitions in Kafka's client jars (needs mvn)
	@$(BIN)/python broker/tools/messages.py

.PHONY: clients
clients: $(STAMP) ## Generate client/blocking/blocking_*.py from the asynchronous clients
	@$(BIN)/python broker/tools/clients.py

.PHONY: chart
chart: crds ## Lint the chart; render manifests/operator.yaml and its tests' stored renderings (needs helm)
	@charts/render all

.PHONY: bench
bench: check-java $(STAMP) $(if $(filter 0,$(COMPILED)),,compiled) ## Compare with Apache Kafka in 3.5 hours; QUICK=1 or ONLY=name for less (needs mvn)
	@$(if $(filter 0,$(COMPILED)),,$(WITH_CORE)) $(BIN)/python broker/tests/bench/compare.py $(if $(QUICK),--quick) $(if $(SCALE),--scale $(SCALE)) $(foreach name,$(ONLY),--only $(name))

.PHONY: fuzz
fuzz: $(STAMP) ## Search for inputs that break a parser for MINUTES=8, from SEED=1; ONLY=requests for one, KEEP=1 to store inputs (Linux)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt atheris
	@$(BIN)/python broker/tests/fuzz/fuzz.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep) $(foreach name,$(ONLY),--only $(name))

.PHONY: torture
torture: $(STAMP) ## Test the log with RUNS=200 random crashes from SEED=0 on, then kill processes for MINUTES=2
	@$(BIN)/python broker/tests/torture/run.py $(if $(RUNS),--runs $(RUNS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

.PHONY: sim
sim: $(STAMP) ## Simulate a cluster with faults: SEED=n replays a run, SEEDS=a-b or HOURS=n search
	@$(BIN)/python broker/tests/sim/run.py $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(HOURS),--hours $(HOURS))

.PHONY: faults
faults: check-java $(STAMP) ## Kill, stop and wipe real processes under load for MINUTES=30, from SEED=0
	@$(BIN)/python broker/tests/faults/run.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

.PHONY: clean
clean: ## Remove the virtual environment, caches and embedded data
	rm -rf $(VENV) .compiled .odradek .interop .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
