# Every target sets up what it needs and may be run again at any point.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $(name))))
VENV := .venv
BIN := $(VENV)/bin
export PYTHONPATH := hack:tests
# Tests start our programs hundreds of times. Without bytecode on disk, each start compiles all modules anew.
export PYTHONDONTWRITEBYTECODE :=
# Tests wait for about as long as they compute: for clusters, time-outs, retries and programs that start. Each worker of
# the cluster tests has a cluster of its own.
WORKERS ?= $(shell expr 2 '*' $$(nproc))
SIDE_BY_SIDE := --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder
# Slow tests mostly compute: with as many workers, each would wait for the others.
SLOW_WORKERS ?= $(shell expr 1 + $$(nproc))
SLOWLY := --numprocesses=$(SLOW_WORKERS) --dist=loadfile --no-loadscope-reorder
QUICK := -m 'not slow'

.PHONY: help
help: ## list all targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 20

.PHONY: setup
setup: $(VENV)/.installed ## make the virtual environment with all that the other targets need

$(VENV)/.installed: pyproject.toml client/pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "setup: needs Python 3.11 or later with its venv module (on Debian: apt install python3-venv)" >&2; exit 1; fi
	@echo "setup: installing Reprieve and its tools into $(VENV) (about a minute the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable client || { \
		echo "setup: pip could not install what pyproject.toml names; does it reach a package index?" >&2; exit 1; }
	@touch $@

.PHONY: binaries
binaries: setup ## build the control plane, and the node's programs where this machine can run one (once, some 12 minutes)
	@$(BIN)/python hack/cluster build

.PHONY: upstream
upstream: setup ## build what tests compare with: the upstream scheduler, promtool, Helm, kube-router, the comparisons of Argo CD and Flux (once, some 15 minutes)
	@$(BIN)/python hack/cluster build --what scheduler-plugins
	@$(BIN)/python hack/cluster build --what promtool
	@$(BIN)/python hack/cluster build --what helm
	@$(BIN)/python hack/cluster build --what kube-router
	@$(BIN)/python hack/cluster build --what gitops
	@$(BIN)/python hack/cluster build --what kind

.PHONY: demo
demo: setup ## boot a real cluster, install Reprieve and show the main job (KUBECONFIG=… uses that cluster after asking)
	@$(BIN)/python -m mainjob $(if $(filter command,$(origin KUBECONFIG)),--kubeconfig "$(KUBECONFIG)")

.PHONY: demo-down
demo-down: setup ## remove what `make demo` left running
	@$(BIN)/python -m mainjob --down

.PHONY: test
test: setup binaries check bench-gate ## every check, and every test that is not slow (about a quarter of an hour; WORKERS=4)
	@$(BIN)/pytest $(SIDE_BY_SIDE) $(QUICK) --cov --cov-report=term-missing:skip-covered tests

.PHONY: test-all
test-all: test upstream docs-tools ## `make test`, and the slow proofs: chaos, gangs, the controllers' day, both schedulers
	@seeds=$$($(BIN)/python -c 'import random; print(*random.sample(range(10**9), 20), sep=",")') && \
		echo "twenty new seeds: make test-differential SCENES=50 SEED=$$seeds" && \
		REPRIEVE_SCENES=50 REPRIEVE_SEED=$$seeds $(BIN)/pytest $(SLOWLY) -m slow tests

.PHONY: test-fast
test-fast: setup ## the tests that need no cluster, without the heavy ones: unit, contract, integration (under a minute; HEAVY=1: all)
	@$(if $(HEAVY),,REPRIEVE_EXAMPLES=10) $(BIN)/pytest $(SIDE_BY_SIDE) -m 'not slow$(if $(HEAVY),, and not heavy)' tests/unit tests/contract tests/integration

.PHONY: test-cluster
test-cluster: setup binaries ## the cluster tests of `make test`: on a real control plane and, where it can run, a real node
	@$(BIN)/pytest $(SIDE_BY_SIDE) $(QUICK) tests/cluster tests/differential

.PHONY: test-version
test-version: setup ## the cluster tests of `make test` on an older Kubernetes, built on the first run (some ten minutes; KUBERNETES=1.34; docs/compatibility.md)
	@if [ -z "$(KUBERNETES)" ]; then echo "test-version: name a version, like KUBERNETES=1.34" >&2; exit 1; fi
	@REPRIEVE_KUBERNETES=$(KUBERNETES) $(BIN)/python hack/cluster build
	@REPRIEVE_KUBERNETES=$(KUBERNETES) $(BIN)/pytest $(SIDE_BY_SIDE) $(QUICK) tests/cluster

# An own folder for each run: files of an earlier one would hide a right that is no longer used.
RIGHTS_FOLDER := .test-runs/rights
.PHONY: rights
rights: setup binaries ## the cluster tests, and which rights of our programs they used or missed (SLOW=1: with the slow ones)
	@rm -rf $(RIGHTS_FOLDER)
	@REPRIEVE_RIGHTS=$(abspath $(RIGHTS_FOLDER)) $(BIN)/pytest $(SIDE_BY_SIDE) $(if $(SLOW),,$(QUICK)) tests/cluster $(if $(SLOW),tests/chaos); \
		status=$$?; $(BIN)/python -m reprieve_testing.rights $(RIGHTS_FOLDER) && exit $$status

.PHONY: test-repeat
test-repeat: setup ## `make test` several times, with a log of each run and a summary (TIMES=5, the last BUSY=2 with a busy loop beside)
	@$(BIN)/python -m repeat --times $(or $(TIMES),5) --busy $(or $(BUSY),2)

.PHONY: test-differential
test-differential: setup binaries upstream ## the same scenarios through upstream's own engines and through ours (SCENES=3000 SEED=7,8)
	@$(if $(SCENES),REPRIEVE_SCENES=$(SCENES)) $(if $(SEED),REPRIEVE_SEED=$(SEED)) $(BIN)/pytest tests/differential

.PHONY: test-chaos
test-chaos: setup binaries ## kill -9 of all parts at every write of a victim's life, and worse (TIMES=20, ONLY=lease)
	@$(BIN)/pytest tests/chaos $(if $(ONLY),-k "$(ONLY)")

.PHONY: test-robustness
test-robustness: setup binaries ## random work and random faults for an hour, and a checker of the history (MINUTES=60 SEED=7 SHRINK=10, PLAN=file)
	@$(BIN)/python -m reprieve_testing.robustness --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(if $(SHRINK),--shrink $(SHRINK)) $(if $(PLAN),--plan $(PLAN)) $(ARGS)

.PHONY: test-gate
test-gate: setup binaries ## twenty gangs that start from cold, fifty times, and again with the operator killed at random (ROUNDS=50)
	@GATE_ROUNDS=$(or $(ROUNDS),50) $(BIN)/pytest --numprocesses=2 --dist=load tests/cluster/gangs/test_gate_room.py

.PHONY: test-gangs
test-gangs: setup binaries ## a hundred preemptions of gangs by gangs on the stock scheduler, with guard and extender (ROUNDS=100)
	@GANG_ROUNDS=$(or $(ROUNDS),100) $(BIN)/pytest tests/cluster/extender/test_gangs.py

FRAMEWORKS := .venv-frameworks
.PHONY: test-frameworks
test-frameworks: setup ## the client library with PyTorch, Lightning, the Hugging Face Trainer, JAX, Orbax and Ray (installs some GB)
	@echo "test-frameworks: installing the frameworks into $(FRAMEWORKS) (some GB, the first time)"
	@$(PYTHON) -m venv $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check --requirement client/requirements-frameworks.txt
	@REPRIEVE_FRAMEWORKS_PYTHON=$(abspath $(FRAMEWORKS))/bin/python $(BIN)/pytest tests/integration/client/test_frameworks.py

.PHONY: check
check: setup ## lint, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: format
format: setup ## format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

.PHONY: bench-webhooks
bench-webhooks: setup ## the admission server beside controller-runtime and Go's net/http: requests/s, latency, memory
	@$(BIN)/python -m bench.webhooks

.PHONY: bench-check
bench-check: setup ## reprieve check on 10,000 documents, on one core: seconds and memory
	@$(BIN)/python -m bench.checks

.PHONY: bench-admission
bench-admission: setup binaries ## what the webhooks and the CEL overlay add to a pod's creation, on a real API server
	@$(BIN)/python -m bench.admission

.PHONY: bench-cel
bench-cel: setup binaries ## the overlay cel beside policies by hand: processor time of the API server's admission plugins, in one process (ARGS=--parts)
	@$(BIN)/python -m bench.cel $(ARGS)

.PHONY: bench-victims
bench-victims: setup binaries ## a thousand victims at once among 50,000 pods, beside a minimal program (VICTIMS=1000,10000 PODS=50000 NODES=1000)
	@$(BIN)/python -m bench.victims $(if $(VICTIMS),--victims $(VICTIMS)) $(if $(PODS),--pods $(PODS)) $(if $(NODES),--nodes $(NODES)) $(ARGS)

.PHONY: bench
bench: setup binaries ## run the benchmarks one after the other, and write docs/benchmarks.md; continues where it was stopped (ONLY=webhooks,check AGAIN=1)
	@$(BIN)/python -m bench.page $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again) $(ARGS)

.PHONY: bench-page
bench-page: setup ## write docs/benchmarks.md from the figures in hack/bench/measured, without measuring
	@$(BIN)/python -m bench.page --write

.PHONY: bench-gate
bench-gate: setup ## fail where a review, a victim or a call of the extender does more than checked in, counted without a cluster (UPDATE=1)
	@$(BIN)/python -m bench.gate $(if $(UPDATE),--update) $(ARGS)

.PHONY: bench-gate-cluster
bench-gate-cluster: setup binaries ## fail where a victim or a created pod costs more calls or processor time than checked in, on a cluster (UPDATE=1)
	@$(BIN)/python -m bench.cluster_gate $(if $(UPDATE),--update) $(ARGS)

.PHONY: bench-preemption
bench-preemption: setup binaries ## traces of jobs against each way to preempt; continues where it was stopped (TRACE=synthetic|philly|openb JOBS=2000 NODES=200 SEEDS=1,2 CONTENDERS=stock,upstream,guard,guard-budgets,extender,no-notice,policy-only)
	@$(BIN)/python -m bench.preemption $(if $(TRACE),--trace $(TRACE)) $(if $(JOBS),--jobs $(JOBS)) $(if $(NODES),--nodes $(NODES)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(CONTENDERS),--contenders $(CONTENDERS)) $(ARGS)

.PHONY: bench-simulate
bench-simulate: setup ## bench-preemption simulated, in about a minute (SEEDS=1,2,3,4 JOBS=2000 NODES=200 TRACE=synthetic|philly|openb)
	@$(BIN)/python -m bench.preemption.simulator $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(NODES),--nodes $(NODES)) $(if $(TRACE),--trace $(TRACE)) $(ARGS)

.PHONY: bench-extender
bench-extender: setup ## one call of a scheduler about 5,000 nodes, with uids and with whole pods (NODES=5000 PODS=10 a node), or memory and such calls by size (SIZES=100:3000,5000:150000)
	@$(BIN)/python -m bench.$(if $(SIZES),memory --sizes $(SIZES),extender) $(if $(NODES),--nodes $(NODES)) $(if $(PODS),--pods $(PODS)) $(ARGS)

.PHONY: fuzz
fuzz: setup ## hostile reviews and clients against the admission server (SEED=7 BUDGET=100000, or BUDGET=90s; ONLY=4711 repeats one)
	@$(BIN)/python -m fuzz $(if $(SEED),--seed $(SEED)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY))

.PHONY: record
record: setup binaries ## record the reviews that a real API server sends to webhooks (tests/contract/reviews/recorded)
	@$(BIN)/python -m record

.PHONY: docs
docs: setup ## write the reference of rules (docs/rules) from the rules and their pinned messages
	@$(BIN)/python -m reference

.PHONY: chart-templates
chart-templates: setup ## write the chart's templates (charts/reprieve/templates) from the manifests
	@$(BIN)/python -m distribution templates

.PHONY: chart
chart: setup ## write the Helm chart as one file into dist/ (IMAGE=registry.example.com/reprieve:0.1.0)
	@$(BIN)/python -m distribution chart --image "$(IMAGE)"

.PHONY: install-yaml
install-yaml: setup ## write the base as one file, dist/install.yaml (IMAGE=registry.example.com/reprieve:0.1.0)
	@$(BIN)/python -m distribution install-yaml --image "$(IMAGE)"

.PHONY: docs-tools
docs-tools: $(VENV)/.docs

$(VENV)/.docs: $(VENV)/.installed
	@echo "docs-tools: installing MkDocs into $(VENV) (some seconds, the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

.PHONY: docs-site
docs-site: setup docs-tools ## write the documentation as a web site, into site/; every warning is an error
	@echo "docs-site: writing the pages into site/ (some 20 seconds)"
	@$(BIN)/python -m docsite

.PHONY: new-rule
new-rule: setup ## create the files of a new admission rule and print the next steps (NAME=max-replicas)
	@$(BIN)/python -m new_rule "$(NAME)"

.PHONY: test-shard
test-shard: setup binaries ## one part of the cluster tests, for a CI that runs parts side by side (SHARD=1/4)
	@files=$$($(BIN)/python -m shard "$(SHARD)" tests/cluster tests/differential) && \
		$(BIN)/pytest $(SIDE_BY_SIDE) $(QUICK) $$files

.PHONY: image
image: setup ## build the image of all programs as an OCI archive with its SBOM, without a container engine (dist/, 15 seconds; IMAGE=registry.example.com/reprieve:0.1.0 names it, ARCH=arm64, ARCH=amd64,arm64)
	@$(BIN)/python -m image $(if $(IMAGE),--name "$(IMAGE)") $(if $(ARCH),--architecture "$(ARCH)") $(ARGS)

.PHONY: image-lock
image-lock: setup ## pin the newest Python and Debian packages of the image (hack/image/locks)
	@$(BIN)/python -m image --lock

.PHONY: version
version: setup ## write a version into each place that says it, and cut the changelog (VERSION=0.2.0)
	@$(BIN)/python -m release version "$(VERSION)"

.PHONY: release
release: setup ## build all that a release has into dist/, from a clean tree (VERSION=0.2.0 IMAGE=registry.example.com/reprieve WITHOUT=image,chart)
	@$(BIN)/python -m release build "$(VERSION)" --without "$(WITHOUT)"

.PHONY: proto
proto: setup ## write the operator's gRPC messages from the published contract in proto/
	@$(BIN)/python -m stubs

.PHONY: clean
clean: ## remove the virtual environment and caches in the tree (binaries outside it stay)
	@rm -rf $(VENV) $(FRAMEWORKS) site build .coverage .test-runs .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
