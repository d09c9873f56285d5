# What people do with this project; `make help` lists it. Scripts behind it are in .ci/.

SHELL := /bin/sh
.DEFAULT_GOAL := help

CACHE := $(or $(ASYA_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/asya-tests,$(HOME)/.cache/asya-tests))
LOCKED := $(if $(CI),--locked)
BIN := $(abspath $(or $(CARGO_TARGET_DIR),target))/debug
export ASYA_BIN_DIR ?= $(BIN)

CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny

CARGO_MUTANTS_VERSION := 27.1.0
CARGO_MUTANTS := $(CACHE)/cargo-mutants-$(CARGO_MUTANTS_VERSION)/bin/cargo-mutants

MDBOOK_VERSION := 0.5.4
MDBOOK := $(CACHE)/mdbook-$(MDBOOK_VERSION)/bin/mdbook
BOOK := $(dir $(BIN))book

# Integration tests that need neither a cluster nor a broker. Naming them beside --workspace keeps one set of features, and one build, for all tests.
INTEGRATION := $(filter-out scenarios real sidecar,$(basename $(notdir $(wildcard */tests/*.rs) $(patsubst %/main.rs,%,$(wildcard */tests/*/main.rs)))))

# What the operator's image holds, and the names of both images: whole ones, by which kubelets find what containerd imported (`kind load`).
PROGRAMS := asya-controller asya-webhook
IMAGE_FOLDER := $(dir $(BIN))image
VERSION := $(shell sed -n 's/^appVersion: "\(.*\)"/\1/p' charts/asya-operator/Chart.yaml)
IMAGE ?= docker.io/library/asya-operator:$(VERSION)
SIDECAR_IMAGE ?= docker.io/library/asya-sidecar:$(VERSION)
# Megabytes of the sidecar's unpacked (SC-98): every node pulls it.
SIDECAR_LIMIT := 15

# Files of a release, where its images and archives will be, and what they run on.
RELEASE ?= $(dir $(BIN))release-$(VERSION)
REGISTRY ?=
DOWNLOAD_URL ?=
PLATFORMS ?= linux/amd64 linux/arm64
HELM := $(dir $(BIN))helm
# Has krew, and what checks manifests for its index.
KREW := $(dir $(BIN))krew/krew

# Versions of Kubernetes and KEDA, and what runs on each of them: what depends on the API server, KEDA or helm.
MATRIX ?= 1.30/2.16 1.33/default default/2.16
CORE := crd:: standalone:: binding:: bad_objects:: deletion:: keda:: scaling:: scaled_targets:: owners:: admission:: admission_rules:: rights:: installs:: messages:: examples::

# Scenarios that take more rounds at night than by day.
LONGER := targets::refused:: admission_rules::expressions:: caches::event_lists::

# Programs and chart of the commit that is upgraded.
FORMER := $(dir $(BIN))former

# Scenarios that run at a time: most of them wait for something most of the time. Those on the shared cluster start all at once and wait for their
# slots (tests/src/scheduling.rs), and others run on clusters of their own meanwhile.
SCENARIOS := $(shell expr 3 '*' $$(nproc))
RUN_SCENARIOS := RUST_TEST_THREADS=1000 ASYA_TEST_SLOTS=$(SCENARIOS) $(BIN)/asya-cluster run --sqs --keda -- python3 .ci/progress.py cargo test $(LOCKED) --workspace --test scenarios --
# On real pods, which need the processors themselves.
REAL_SCENARIOS := $(shell expr 3 '*' $$(nproc))

# How many seeds are simulated, and the first of them.
SEEDS ?= 1000
FIRST ?= 0
# A run frees all that it has allocated, and the next one needs it again: giving it back to the system costs a tenth of the time.
KEEP_MEMORY := MIMALLOC_PURGE_DELAY=-1

# What is mutated: FROM=COMMIT, what changed since then; FILE=PATH of a file or folder; ALL=1.
FROM ?=
FILE ?=
ALL ?=

# How long each target is fuzzed.
MINUTES ?= 10

# A scenario by its name, or a part of it: make test-scenarios NAME=queue
NAME ?=

# Steps of `make demo`: those that the prerequisites below print, before the demo's own.
demo: STEPS := 11
demo: STEP_asya-cluster := 1
demo: STEP_programs := 2
demo: STEP_asya-sidecar := 3
STEP = $(if $(STEP_$@),@echo '[$(STEP_$@)/$(STEPS)] compiling $(patsubst programs,$(PROGRAMS),$@)')

.PHONY: help demo up down build image release docs docs-reference bench bench-sidecar faults fuzz mutants simulate test lint test-unit test-runtime test-chart test-brokers test-scenarios test-real test-core test-matrix test-nightly test-upgrade test-krew test-release
.PHONY: test-scripts requirements programs asya-cluster cluster harness kubectl-asya rust python go tools-of-cluster tools-of-tests plan-demo plan-up plan-test

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  %-15s %s\n' "$$name" "$$text"; done

demo: tools-of-cluster plan-demo asya-cluster programs asya-sidecar ## Start a cluster with the operator, run a first actor, send messages, bind a Deployment, KAITO and KServe, end everything; ARGS=--stay keeps it
	@$(BIN)/asya-cluster demo --after $(STEP_asya-sidecar) $(ARGS)

up: tools-of-cluster plan-up asya-cluster programs ## Start a cluster with the operator, without sidecars, and leave it running; ARGS="--keda --sqs" adds KEDA and an SQS server
	@$(BIN)/asya-cluster up $(ARGS)

down: asya-cluster ## End the cluster that `make up` started
	@$(BIN)/asya-cluster down

build: rust ## Build both programs for release: target/release/asya-controller, target/release/asya-webhook
	cargo build --release $(LOCKED) $(PROGRAMS:%=-p %)

image: rust python ## Image archives, without an engine: target/image/asya-operator.tar, asya-sidecar.tar; IMAGE=NAME:TAG SIDECAR_IMAGE=NAME:TAG
	cargo build --release $(LOCKED) $(PROGRAMS:%=-p %)
	cargo build --release $(LOCKED) -p asya-sidecar
	rm -rf $(IMAGE_FOLDER) && mkdir -p $(IMAGE_FOLDER)
	image/root.sh $(IMAGE_FOLDER)/operator $(PROGRAMS:%=$(dir $(BIN))release/%)
	python3 image/sbom.py asya-operator $(IMAGE_FOLDER)/operator $(PROGRAMS)
	image/root.sh $(IMAGE_FOLDER)/sidecar $(dir $(BIN))release/asya-sidecar
	python3 image/sbom.py asya-sidecar $(IMAGE_FOLDER)/sidecar asya-sidecar
	@python3 image/archive.py asya-operator $(IMAGE_FOLDER)/operator $(IMAGE) $(IMAGE_FOLDER)/asya-operator.tar
	@python3 image/archive.py asya-sidecar $(IMAGE_FOLDER)/sidecar $(SIDECAR_IMAGE) $(IMAGE_FOLDER)/asya-sidecar.tar $(SIDECAR_LIMIT)

docs: rust python $(MDBOOK) ## The documentation as a site: target/book; fails if a link or an anchor in it leads nowhere
	python3 .ci/references.py
	rm -rf $(BOOK)
	$(MDBOOK) build --dest-dir $(BOOK)
	python3 .ci/book.py finish $(BOOK)

docs-reference: python ## Write docs/reference/ from the source
	python3 .ci/references.py

release: rust go python ## Files of a release, the same bytes at every run: target/release-VERSION; VERSION=0.2.0 REGISTRY=registry.example.com/asya DOWNLOAD_URL=https://example.com/0.2.0 PLATFORMS=linux/amd64
	@# Refused, if at all, before helm is compiled.
	@python3 release/release.py $(VERSION) $(RELEASE) --check --platforms $(PLATFORMS)
	@$(MAKE) --no-print-directory $(HELM)
	python3 release/release.py $(VERSION) $(RELEASE) --target $(dir $(BIN)) --helm $(HELM) --registry '$(REGISTRY)' --download-url '$(DOWNLOAD_URL)' --platforms $(PLATFORMS)

bench: rust go python bench-sidecar ## Figures of the operator beside a bare client, on a cluster of its own, and of the sidecar; ARGS="--actors 300"
	cargo build --release $(LOCKED) $(PROGRAMS:%=-p %)
	cargo build --release $(LOCKED) -p kubectl-asya
	ASYA_BIN_DIR=$(dir $(BIN))release cargo bench $(LOCKED) -p asya-tests --bench figures -- $(ARGS)
	ASYA_BIN_DIR=$(dir $(BIN))release cargo bench $(LOCKED) -p asya-tests --bench admission
	ASYA_BIN_DIR=$(dir $(BIN))release cargo bench $(LOCKED) -p asya-tests --bench slow_broker
	cargo test $(LOCKED) --workspace --lib -- --ignored --nocapture claims_of_crowds

# ARGS of `make bench` are the operator's.
bench-sidecar: rust python ## Figures of the sidecar beside a bare mover of messages; ARGS="--only throughput,latency --rounds 3"
	cargo build --release $(LOCKED) -p asya-sidecar
	ASYA_BIN_DIR=$(dir $(BIN))release cargo bench $(LOCKED) -p asya-tests --bench sidecar -- $(if $(filter bench,$(MAKECMDGOALS)),,$(ARGS))

fuzz: rust ## Parsers against inputs that no run has tried before, MINUTES=10 for each
	ASYA_FUZZ_MINUTES=$(MINUTES) cargo test $(LOCKED) --workspace --lib --bins fuzz:: -- --nocapture

faults: tools-of-tests cluster asya-sidecar ## Faults of brokers, sidecars and runtimes while messages flow; ARGS="--faults 1000 --seed 7 --queues quorum --slots 8"
	ASYA_FAULTS="$(ARGS)" cargo test $(LOCKED) --workspace --test sidecar -- --ignored --nocapture faults::

mutants: rust python $(CARGO_MUTANTS) ## Small breaks of the code that no unit test notices: FROM=COMMIT for what changed, FILE=PATH, or ALL=1
	@MUTANTS=$(dir $(BIN))mutants CARGO_MUTANTS=$(CARGO_MUTANTS) FROM=$(FROM) FILE='$(FILE)' ALL=$(ALL) python3 .ci/mutants.py

simulate: rust ## The controller against an API server, brokers and a clock in memory, with faults; SEEDS=1000 FIRST=0
	$(KEEP_MEMORY) cargo run $(LOCKED) --profile simulation -p asya-simulation -- --seeds $(SEEDS) --first $(FIRST)

test: tools-of-tests plan-test ## Run lint, test-scripts, test-runtime, test-unit, test-chart, test-brokers, test-scenarios and test-real, and print one table
	@python3 .ci/parts.py

lint: rust python $(CARGO_DENY) ## Format, clippy, dependencies, generated CRD and references, links, length of files
	@CARGO_DENY=$(CARGO_DENY) python3 .ci/lint.py

test-unit: rust ## Tests of all crates that need no cluster
	cargo test $(LOCKED) --workspace --lib --bins $(INTEGRATION:%=--test %)
	@# Alone in its process: it measures the memory of all of it.
	cargo test $(LOCKED) --workspace --lib -- --ignored memory_of_fifty

test-runtime: python ## Tests of asya_runtime.py
	python3 -m unittest discover -s controller/runtime/tests

test-chart: rust go python cluster ## Tests of the chart, with helm 3 and helm 4
	@$(BIN)/asya-cluster build tools helm3
	python3 -m unittest discover -s charts/asya-operator/tests

test-scenarios: tools-of-tests programs asya-sidecar kubectl-asya harness ## Scenarios on a real Kubernetes; NAME=... for some of them
	$(RUN_SCENARIOS) $(NAME)

test-real: rust go python programs asya-sidecar harness ## Scenarios on real pods, where root and cgroups allow a kubelet; NAME=... for some of them, ALL=1 for the long ones, too
	RUST_TEST_THREADS=$(REAL_SCENARIOS) $(BIN)/asya-cluster real -- $(BIN)/asya-cluster run --real --sqs --keda -- \
		cargo test $(LOCKED) --offline --workspace --test real -- $(if $(ALL),--include-ignored --skip release::) $(NAME)

test-core: tools-of-tests programs asya-sidecar kubectl-asya harness
	$(RUN_SCENARIOS) $(CORE) --skip flood --skip states::

test-matrix: tools-of-tests programs asya-sidecar kubectl-asya harness ## The core scenarios on other versions of Kubernetes and KEDA, installed by helm 3 and helm 4: MATRIX="1.30/2.16 1.33/default"
	@python3 .ci/matrix.py $(MATRIX)

test-nightly: tools-of-tests programs asya-sidecar kubectl-asya harness ## What takes hours: all real pods, other versions, 10,000 seeds, fuzzing
	ASYA_REQUIRE_REAL=1 $(MAKE) --no-print-directory test-real ALL=1
	ASYA_ROUNDS=20 ASYA_ODD_PODS=10000 ASYA_REFRESHES=1 $(MAKE) --no-print-directory test-scenarios NAME='$(LONGER)'
	$(MAKE) --no-print-directory test-matrix
	ASYA_TEST_RABBITMQ_VERSION=4.0 $(MAKE) --no-print-directory test-brokers
	ASYA_TEST_RABBITMQ_VERSION=4.3 $(MAKE) --no-print-directory test-brokers
	$(MAKE) --no-print-directory simulate SEEDS=10000
	$(MAKE) --no-print-directory fuzz

test-upgrade: tools-of-tests programs harness ## Upgrade 50 actors and 10 bindings from another commit and back: FROM=COMMIT
	@test -n "$(FROM)" || { echo 'FROM is missing: make test-upgrade FROM=COMMIT' >&2; exit 1; }
	rm -rf $(FORMER)/source && mkdir -p $(FORMER)/source $(FORMER)/bin
	git archive $(FROM) | tar -x -C $(FORMER)/source
	cd $(FORMER)/source && CARGO_TARGET_DIR=$(FORMER)/target cargo build --locked $(PROGRAMS:%=-p %) && cp $(PROGRAMS:%=$(FORMER)/target/debug/%) $(FORMER)/bin/
	rm -rf $(FORMER)/chart && cp -r $(FORMER)/source/charts/asya-operator $(FORMER)/chart
	ASYA_UPGRADE_FROM=$(FORMER) $(BIN)/asya-cluster run --sqs --keda -- cargo test $(LOCKED) --workspace --test scenarios -- --ignored --nocapture upgrade::

test-krew: go python $(KREW) ## Install kubectl-asya from the files that `make release VERSION=...` made, as krew does, and time its start: VERSION=... or RELEASE=FOLDER
	@test -e $(RELEASE)/SHA256SUMS || { echo '$(RELEASE) has no release: make release VERSION=...' >&2; exit 1; }
	ASYA_RELEASE=$(abspath $(RELEASE)) ASYA_KREW=$(dir $(KREW)) python3 -m unittest discover -s release/tests -p installed.py

test-release: rust go python test-krew programs asya-sidecar harness ## Install the files that `make release VERSION=...` made, from a registry, on a real node: VERSION=... or RELEASE=FOLDER
	@test -e $(RELEASE)/SHA256SUMS || { echo '$(RELEASE) has no release: make release VERSION=...' >&2; exit 1; }
	@{ command -v skopeo && command -v docker-registry; } >/dev/null || { echo 'skopeo or docker-registry is missing: install both (Debian: apt-get install skopeo docker-registry)' >&2; exit 1; }
	ASYA_RELEASE=$(abspath $(RELEASE)) $(BIN)/asya-cluster real -- $(BIN)/asya-cluster run --real --no-operator -- \
		cargo test $(LOCKED) --offline --workspace --test real -- --ignored --nocapture release::

test-brokers: tools-of-tests cluster asya-sidecar ## Tests of the brokers' clients and of the sidecar, on real brokers
	$(BIN)/asya-cluster run --sqs --no-operator -- cargo test $(LOCKED) --workspace --lib -- --ignored broker::tests::
	RUST_TEST_THREADS=$(SCENARIOS) cargo test $(LOCKED) --workspace --test sidecar -- --skip faults:: --skip timed::
	@# What is timed: one at a time.
	RUST_TEST_THREADS=1 cargo test $(LOCKED) --workspace --test sidecar -- faults:: timed::

test-scripts: python ## Tests of the scripts in .ci/, image/, release/, tests/sandbox/ and tests/pods/
	python3 -m unittest discover -s .ci
	python3 -m unittest discover -s image/tests
	python3 -m unittest discover -s release/tests
	python3 -m unittest discover -s tests/sandbox
	python3 -m unittest discover -s tests/pods

requirements: python ## Requirements in docs/spec/ that no test names; ONLY="VAL POD-1..POD-4"
	@python3 .ci/requirements.py $(ONLY)

# Built as for the images, so that what is tested has the features of what is shipped: both in one call, which compiles their dependencies once.
programs: rust
	$(STEP)
	cargo build $(LOCKED) $(PROGRAMS:%=-p %)

asya-sidecar kubectl-asya:
	$(STEP)
	cargo build $(LOCKED) -p $@

# asya-cluster alone, for those who run no tests: without the dependencies of tests.
asya-cluster: rust go
	$(STEP)
	cargo build $(LOCKED) -p asya-tests --bin asya-cluster

# asya-cluster, with the features and thus the dependencies of `make test-unit`: cargo builds the programs of a package with its integration tests,
# and this is the smallest.
cluster: rust go
	cargo test $(LOCKED) --workspace --test command_line --no-run

# The same, and the scenarios.
harness: rust go
	cargo test $(LOCKED) --workspace --test scenarios --test real --no-run

$(MDBOOK):
	cargo install --locked --quiet --no-default-features --features search --root $(CACHE)/mdbook-$(MDBOOK_VERSION) mdbook@$(MDBOOK_VERSION)

$(CARGO_DENY):
	cargo install --locked --quiet --root $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION) cargo-deny@$(CARGO_DENY_VERSION)

$(CARGO_MUTANTS):
	cargo install --locked --quiet --root $(CACHE)/cargo-mutants-$(CARGO_MUTANTS_VERSION) cargo-mutants@$(CARGO_MUTANTS_VERSION)

$(HELM): tests/cluster/tools/go.mod tests/cluster/tools/go.sum | go
	cd tests/cluster/tools && CGO_ENABLED=0 go build -ldflags '-s -w' -o $(HELM) helm.sh/helm/v4/cmd/helm

$(KREW): tests/cluster/krew/go.mod tests/cluster/krew/go.sum | go
	mkdir -p $(dir $(KREW)) && cd tests/cluster/krew && CGO_ENABLED=0 go build -ldflags '-s -w' -o $(dir $(KREW)) tool

# Whether the tools are there and new enough; each tells what is missing and how to install it. A target that needs several names them first, so that
# they are checked before anything is compiled.
rust go python:
	@.ci/tools.sh $@

# All that is missing at once, for those who begin on a new machine.
tools-of-cluster:
	@.ci/tools.sh rust go python $(if $(findstring --no-rabbitmq,$(ARGS)),,rabbitmq) $(if $(findstring --sqs,$(ARGS)),sqs)

tools-of-tests:
	@.ci/tools.sh rust go python rabbitmq sqs

# What is going to be built, how long that takes, and whether the disk has room for it.
plan-demo plan-up plan-test:
	@python3 .ci/plan.py $(@:plan-%=%)
