# What people do with this project; `make help` lists it. Scripts behind it are in .ci/.

SHELL := /bin/sh
.DEFAULT_GOAL := help

CACHE := $(or $(ASYA_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/asya-tests,$(HOME)/.cache/asya-tests))
LOCKED := $(if $(CI),--locked)
BIN := $(abspath $(or $(CARGO_TARGET_DIR),target))/debug
export ASYA_BIN_DIR ?= $(BIN)

CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny

# Integration tests that need neither a cluster nor a broker. Naming them beside --workspace keeps one set of features, and one build, for all tests.
INTEGRATION := $(filter-out scenarios real sidecar,$(basename $(notdir $(wildcard */tests/*.rs) $(patsubst %/main.rs,%,$(wildcard */tests/*/main.rs)))))

# What the image holds, and its name.
PROGRAMS := asya-controller asya-webhook
IMAGE_FOLDER := $(dir $(BIN))image
IMAGE ?= asya-operator:$(shell sed -n 's/^appVersion: "\(.*\)"/\1/p' charts/asya-operator/Chart.yaml)

# Programs and chart of the commit that is upgraded.
FORMER := $(dir $(BIN))former

# Scenarios that run at a time: most of them wait for something most of the time.
SCENARIOS := $(shell expr 3 '*' $$(nproc))
# On real pods, which need the processors themselves.
REAL_SCENARIOS := $(shell expr 3 '*' $$(nproc))

# A scenario by its name, or a part of it: make test-scenarios NAME=queue
NAME ?=

.PHONY: help demo up down build image bench test lint test-unit test-runtime test-chart test-brokers test-scenarios test-real test-upgrade test-scripts requirements
.PHONY: programs cluster harness rust python go

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  %-15s %s\n' "$$name" "$$text"; done

demo: programs cluster ## Start a cluster with the operator, run a first actor, bindings of a Deployment, of KAITO and of KServe, end everything
	@$(BIN)/asya-cluster demo $(ARGS)

up: programs cluster ## Start a cluster with the operator and leave it running
	@$(BIN)/asya-cluster up $(ARGS)

down: cluster ## End the cluster that `make up` started
	@$(BIN)/asya-cluster down

build: rust ## Build both programs for release: target/release/asya-controller, target/release/asya-webhook
	$(PROGRAMS:%=cargo build --release $(LOCKED) -p % &&) true

image: rust python ## An image archive of both programs, without an engine: target/image/asya-operator.tar; IMAGE=NAME:TAG
	cargo build --release $(LOCKED) $(PROGRAMS:%=-p %)
	rm -rf $(IMAGE_FOLDER) && mkdir -p $(IMAGE_FOLDER)
	image/root.sh $(IMAGE_FOLDER)/root $(PROGRAMS:%=$(dir $(BIN))release/%)
	@python3 image/archive.py $(IMAGE_FOLDER)/root $(IMAGE) $(IMAGE_FOLDER)/asya-operator.tar

bench: rust go ## Figures of the operator beside a bare client, on a cluster of its own; ARGS="--actors 300"
	cargo build --release $(LOCKED) $(PROGRAMS:%=-p %)
	ASYA_BIN_DIR=$(dir $(BIN))release cargo bench $(LOCKED) -p asya-tests --bench figures -- $(ARGS)
	ASYA_BIN_DIR=$(dir $(BIN))release cargo bench $(LOCKED) -p asya-tests --bench admission
	cargo test $(LOCKED) --workspace --bin asya-controller -- --ignored --nocapture claims_of_crowds

test: python ## Run everything below and print one table
	@python3 .ci/parts.py

lint: rust python $(CARGO_DENY) ## Format, clippy, dependencies, generated CRD, length of files
	@CARGO_DENY=$(CARGO_DENY) python3 .ci/lint.py

test-unit: rust ## Tests of all crates that need no cluster
	cargo test $(LOCKED) --workspace --lib --bins $(INTEGRATION:%=--test %)
	@# Alone in its process: it measures the memory of all of it.
	cargo test $(LOCKED) --workspace --bin asya-controller -- --ignored memory_of_fifty

test-runtime: python ## Tests of asya_runtime.py
	python3 -m unittest discover -s controller/runtime/tests

test-chart: python cluster ## Tests of the chart, with helm 3 and helm 4
	@$(BIN)/asya-cluster build tools helm3
	python3 -m unittest discover -s charts/asya-operator/tests

test-scenarios: programs harness ## Scenarios on a real Kubernetes; NAME=... for some of them
	RUST_TEST_THREADS=$(SCENARIOS) $(BIN)/asya-cluster run --sqs --keda -- cargo test $(LOCKED) --workspace --test scenarios -- $(NAME)

test-real: programs harness ## Scenarios on real pods, where root and cgroups allow a kubelet; NAME=... for some of them, ALL=1 for the long ones, too
	RUST_TEST_THREADS=$(REAL_SCENARIOS) $(BIN)/asya-cluster real -- $(BIN)/asya-cluster run --real --sqs --keda -- \
		cargo test $(LOCKED) --offline --workspace --test real -- $(if $(ALL),--include-ignored) $(NAME)

test-upgrade: programs harness ## Upgrade 50 actors and 10 bindings from another commit and back: FROM=COMMIT
	@test -n "$(FROM)" || { echo 'FROM is missing: make test-upgrade FROM=COMMIT' >&2; exit 1; }
	rm -rf $(FORMER)/source && mkdir -p $(FORMER)/source $(FORMER)/bin
	git archive $(FROM) | tar -x -C $(FORMER)/source
	cd $(FORMER)/source && $(foreach it,$(PROGRAMS),CARGO_TARGET_DIR=$(FORMER)/target cargo build --locked -p $(it) && cp $(FORMER)/target/debug/$(it) $(FORMER)/bin/ &&) true
	rm -rf $(FORMER)/chart && cp -r $(FORMER)/source/charts/asya-operator $(FORMER)/chart
	ASYA_UPGRADE_FROM=$(FORMER) $(BIN)/asya-cluster run --sqs --keda -- cargo test $(LOCKED) --workspace --test scenarios -- --ignored --nocapture upgrade::

test-brokers: cluster asya-sidecar ## Tests of the brokers' clients and of the sidecar, on real brokers
	$(BIN)/asya-cluster run --sqs --no-operator -- cargo test $(LOCKED) --workspace --bin asya-controller -- --ignored broker::tests::
	RUST_TEST_THREADS=$(SCENARIOS) cargo test $(LOCKED) --workspace --test sidecar

test-scripts: python ## Tests of the scripts in .ci/, image/ and tests/box/
	python3 -m unittest discover -s .ci
	python3 -m unittest discover -s image/tests
	python3 -m unittest discover -s tests/box

requirements: python ## Requirements in docs/spec/ that no test names; ONLY="VAL POD-1..POD-4"
	@python3 .ci/requirements.py $(ONLY)

# Each program is built by itself, so that what is tested has the features of what is shipped.
programs: rust $(PROGRAMS)

$(PROGRAMS) asya-sidecar:
	cargo build $(LOCKED) -p $@

# asya-cluster, with the features and thus the dependencies of `make test-unit`: cargo builds the programs of a package with its integration tests,
# and this is the smallest.
cluster: rust go
	cargo test $(LOCKED) --workspace --test command_line --no-run

# The same, and the scenarios.
harness: rust go
	cargo test $(LOCKED) --workspace --test scenarios --test real --no-run

$(CARGO_DENY):
	cargo install --locked --quiet --root $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION) cargo-deny@$(CARGO_DENY_VERSION)

rust:
	@command -v cargo >/dev/null || { echo 'cargo is missing: install Rust with rustup (https://rustup.rs)' >&2; exit 1; }
	@command -v cc >/dev/null || { echo 'cc is missing: install a C compiler (Debian: apt-get install build-essential)' >&2; exit 1; }

go:
	@command -v go >/dev/null || { echo 'go is missing: install Go 1.26 or newer (https://go.dev/dl)' >&2; exit 1; }

python:
	@command -v python3 >/dev/null || { echo 'python3 is missing: install Python 3.8 or newer (Debian: apt-get install python3)' >&2; exit 1; }
