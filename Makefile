SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The device that .venv was set up for, or the device of this machine. Override it with DEVICE=cpu or DEVICE=gpu.
DEVICE ?= $(or $(patsubst .venv/set-up.%,%,$(firstword $(wildcard .venv/set-up.*))),$(shell \
	nvidia-smi -L 2>/dev/null | grep -q ^GPU && echo gpu || echo cpu))
# Tests wait for a third of their time, so that three workers keep two cores busy.
WORKERS ?= 3
TESTS ?= --tier=fast
NAMES ?= control echo executor-cpu
PYTEST := .venv/bin/python -m pytest

# Each group of tests runs in one worker.
DISTRIBUTED := --numprocesses $(WORKERS) --dist loadscope

export PYTHON ONCE UPGRADE WORKERS
export NO_MKDOCS_2_WARNING := 1
# Without compiled modules, each process that tests start compiles Cornserve.
unexport PYTHONPATH PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-slow test-all guard unit integration chaos coverage families clients check docs setup programs manifests cluster cluster-down test-cluster \
	lock format images clean
stage = @printf '\n\033[1;36m=== %s ===\033[0m\n' "$(1)"

help: ## Lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

run: setup ## Serves a small real model and sends it a question (ONCE=1: stops after the response)
	@.venv/bin/python examples/quickstart.py

test: programs ## Runs the checks, builds the documentation, runs all tests but the slow ones
	$(call stage,Checks and documentation)
	@scripts/check
	$(call stage,Tests)
	@$(PYTEST) --tier=fast $(DISTRIBUTED)

test-slow: programs ## Runs the slow tests (SLICE=3/8: the third of eight slices)
	$(call stage,Slow tests$(if $(SLICE), of slice $(SLICE)))
	@$(PYTEST) --tier=slow $(if $(SLICE),--slice=$(SLICE)) $(DISTRIBUTED)

test-all: test test-slow ## Runs the checks, builds the documentation, runs all tests

guard: setup ## Compares the costs of Cornserve with the committed figures (two minutes)
	$(call stage,Costs)
	@.venv/bin/python -m benchmarks.guard

unit: setup ## Runs the unit tests, fast and slow ones (7 minutes)
	@$(PYTEST) -n $(WORKERS) --dist loadfile tests/unit

integration: programs ## Runs the tests with real processes and engines
	@$(PYTEST) tests/integration

chaos: setup ## Runs the chaos tests in full (30 to 40 minutes) and prints a table of the results (CHAOS_SEED=n: repeats a run)
	@CHAOS_FULL=1 $(PYTEST) -m "chaos and not cluster"

coverage: programs ## Runs the tests of `make test` and prints the coverage of each package (TESTS="tests/unit/wire": other ones)
	@rm -rf .cache/coverage && mkdir -p .cache/coverage
	@status=0; \
	COVERAGE_FILE=$(CURDIR)/.cache/coverage/data .venv/bin/coverage run -m pytest $(DISTRIBUTED) $(TESTS) || status=$$?; \
	.venv/bin/python -m scripts.package_coverage && exit $$status

families: setup ## Compares every model family on every path with vLLM and transformers
	@$(PYTEST) -m families

clients: setup ## Runs a dozen client libraries of OpenAI's and Anthropic's APIs with their defaults (needs npm)
	@scripts/clients

check: programs ## Checks format, lint, types, layers, generated files, prose and documentation
	@scripts/check

docs: setup ## Builds the documentation into site/
	@.venv/bin/mkdocs build --strict

format: setup ## Formats the code and applies automatic lint fixes
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

setup: .venv/set-up.$(DEVICE) ## Installs everything into .venv (DEVICE=cpu|gpu, PYTHON=python3.11)
	@:

.venv/set-up.$(DEVICE): pyproject.toml requirements/bootstrap.txt $(wildcard requirements/$(DEVICE).txt) scripts/setup \
		$(wildcard examples/*/pyproject.toml)
	@scripts/setup $(DEVICE)

programs: setup ## Builds etcd and the Kubernetes programs for the tests (needs Go; minutes at first, then nothing)
	@.venv/bin/python -m scripts.cluster.programs kube helm kube-score kwok

manifests: programs ## Regenerates kubernetes/manifests and the reference of the chart's values
	@.venv/bin/python -m scripts.chart

cluster: setup ## Starts a Kubernetes cluster with two nodes on this machine (needs root; minutes at first, then seconds)
	@.venv/bin/python -m scripts.cluster up

cluster-down: setup ## Stops the cluster
	@.venv/bin/python -m scripts.cluster down

test-cluster: programs ## Runs the tests on the cluster (CONTEXT=name: on another one; VLLM=1: with models; SLICE=3/8: of the slow tests, a slice)
	@$(if $(CONTEXT),,.venv/bin/python -m scripts.cluster up)
	@$(if $(CONTEXT),,kubernetes/images/build control echo $(if $(VLLM),executor-cpu))
	@CORNSERVE_TEST_CONTEXT=$(CONTEXT) $(PYTEST) -m "cluster and chaos" $(if $(SLICE),--slice=$(SLICE)) tests/cluster
	@CORNSERVE_TEST_CONTEXT=$(CONTEXT) $(PYTEST) -m "cluster and not chaos$(if $(VLLM),, and not vllm)" \
		$(if $(SLICE),--slice=$(SLICE)) --numprocesses 2 --dist loadscope tests/cluster

lock: ## Regenerates requirements/*.txt from pyproject.toml (UPGRADE=1: newest versions)
	@scripts/lock

images: ## Builds the container images (NAMES="control echo executor-cpu")
	@nice kubernetes/images/build $(NAMES)

clean: ## Removes .venv and all build output
	rm -rf .venv site dist .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
