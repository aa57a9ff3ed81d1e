# The front door: `make` lists what there is.
# `make demo` needs Rust, make and a C compiler; what needs PostgreSQL and RabbitMQ brings them up by itself.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.NOTPARALLEL:

SERVICES := scripts/services.sh

# A fresh clone in CI builds in a directory that outlives it, and never moves the lock file.
ifdef CI
export CARGO_TARGET_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/everstep/target
LOCKED := --locked
endif

# Options for the command behind demo, fleet, ledger-proof, chaos and bench: make fleet ARGS="--help"
ARGS ?=

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the demo: one process, nothing to install
	cargo run --release -q $(LOCKED) -p everstep-examples --bin demo -- $(ARGS)

.PHONY: fleet
fleet: services-up ## Run 1,000 orders on a fleet of real processes, with PostgreSQL and RabbitMQ
	cargo build --release $(LOCKED) --workspace --bins
	eval "$$($(SERVICES) env)"; cargo run --release -q $(LOCKED) -p everstep-fleet-demo --bin fleet -- $(ARGS)

.PHONY: ledger-proof
ledger-proof: services-up ## Run 100,000 steps under kills and count every effect
	cargo build --release $(LOCKED) --workspace --bins
	eval "$$($(SERVICES) env)"; cargo run --release -q $(LOCKED) -p everstep-ledger-proof -- $(ARGS)

.PHONY: chaos
chaos: services-up ## Hit a fleet of real processes and servers with faults of every kind, about 11 minutes
	cargo build --release $(LOCKED) --workspace --bins
	cargo run --release -q $(LOCKED) -p everstep-chaos -- $(ARGS)

.PHONY: crash-matrix
crash-matrix: services-up ## Let coordinator and worker die on either side of each commit, publish and ack, and one of three nodes of a broker
	eval "$$($(SERVICES) env)"; \
	if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run $(LOCKED) -p everstep-system-tests --features crash -E 'binary(crash_matrix) or test(nodes::)'; \
	else \
	  cargo test --no-fail-fast $(LOCKED) -p everstep-system-tests --features crash --test crash_matrix; \
	  cargo test --no-fail-fast $(LOCKED) -p everstep-system-tests --features crash --test system nodes::; \
	fi

# How many seeds `make sim` runs, and how many `make planted` runs at most for each fault.
SEEDS ?=
SIM := cargo run --release -q $(LOCKED) -p everstep-simulator --bin sim

.PHONY: sim
sim: ## Simulate the whole system under seeds, with faults: make sim SEEDS=2000
	$(SIM) -- --seeds $(or $(SEEDS),500) $(ARGS)

# So many cases of each; the ordinary tests make a few hundred.
.PHONY: fuzz
fuzz: ## Ask everything that reads bytes from outside with many random inputs: make fuzz CASES=100000
	EVERSTEP_TEST_FUZZ=$(or $(CASES),20000) cargo test $(LOCKED) -p everstep-protocol -p everstep-calendar -p everstep-coordinator \
	  --test fuzz -- fuzz_

.PHONY: sim-night
sim-night: ## Simulate ten million steps, from seed 1,000,000 on
	$(SIM) -- --from 1000000 --steps 10000000 $(ARGS)

.PHONY: planted
planted: ## See whether the simulator finds each fault that is planted on purpose
	$(SIM) --features planted -- --planted --seeds $(or $(SEEDS),2000) $(ARGS)

.PHONY: bench
bench: services-up ## Measure throughput and latency
	eval "$$($(SERVICES) env)"; cargo run --profile dist $(LOCKED) -p everstep-loadtest -- $(ARGS)

# How long `make soak` runs.
MINUTES ?= 30

.PHONY: soak
soak: services-up ## Run a steady mixed load and see whether what it takes stays flat: make soak MINUTES=30
	eval "$$($(SERVICES) env)"; cargo run --release -q $(LOCKED) -p everstep-soak -- --minutes $(MINUTES) $(ARGS)

.PHONY: test
test: services-up python-env ## Run all tests, with PostgreSQL and RabbitMQ
	cargo test --doc $(LOCKED) --workspace
	eval "$$($(SERVICES) env)"; \
	cargo build $(LOCKED) --workspace --bins; \
	if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run $(LOCKED) --workspace; \
	else \
	  cargo build $(LOCKED) --workspace --bins --examples; \
	  cargo test --no-fail-fast $(LOCKED) --workspace --lib --bins --tests; \
	fi

.PHONY: contract
contract: ## Hold a running server to its OpenAPI document, for a minute
	cargo build $(LOCKED) --workspace --bins
	scripts/contract.sh "$${CARGO_TARGET_DIR:-target}/debug"

.PHONY: ops-check
ops-check: ## Check rules, dashboards, manifests and the operations guide
	scripts/ops-check.sh

# What deploy/Containerfile compiles, in the profile in which it does.
.PHONY: images
images: ## Build the container images without a registry, and look at them; needs root: make images ARGS=FOLDER_FOR_ARCHIVES
	cargo build --profile dist $(LOCKED) -p everstep-cli -p everstep-http -p everstep-examples -p everstep-label-worker --bins
	scripts/images.sh "$${CARGO_TARGET_DIR:-target}/dist" $(ARGS)

.PHONY: pods
pods: images ## Run the Kubernetes manifests as pods, and a rolling update under load, without a cluster; needs root
	scripts/pods.sh

.PHONY: compose-check
compose-check: images ## Run the Compose file for a laptop without Docker, and take it down; needs root
	scripts/compose-check.sh

.PHONY: dashboards-proof
dashboards-proof: services-up ## Ask a real Prometheus every query of dashboards and alerts, and draw the answers
	cargo build --release $(LOCKED) --workspace --bins
	cargo build --release $(LOCKED) -p everstep-cli --examples
	eval "$$($(SERVICES) env)"; scripts/dashboards-proof.sh "$${CARGO_TARGET_DIR:-target}/release" $(ARGS)

.PHONY: dashboards
dashboards: ## Write the dashboards and the PrometheusRule from what they are made of
	deploy/grafana/make.py
	scripts/prometheus-rule.py

.PHONY: check
check: fmt clippy docs absences conformance instructions ops-check contract test ## Everything a change must pass

.PHONY: fmt
fmt: ## Check the formatting (cargo fmt --all repairs it)
	cargo fmt --all --check

.PHONY: clippy
clippy: ## Check with clippy, warnings are errors
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings

.PHONY: docs
docs: ## Build the API documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc $(LOCKED) --workspace --no-deps

.PHONY: absences
absences: ## Prove what crates must not depend on and the engine must not do
	scripts/absences.sh

.PHONY: conformance
conformance: ## Prove that every behaviour in docs/conformance.md has its test or its reason
	scripts/conformance.sh

.PHONY: instructions
instructions: ## Count instructions per instance, a tenth more than recorded is an error
	scripts/instructions.sh

.PHONY: services-up
services-up: ## Start PostgreSQL and RabbitMQ for development and tests
	$(SERVICES) up

.PHONY: services-down
services-down: ## Stop what services-up started; the data stays
	$(SERVICES) down

.PHONY: python-env
python-env: ## Make the Python environment of the producers
	scripts/python-env.sh >/dev/null

.PHONY: settings
settings: ## Write the page of all settings from the code that reads them
	cargo run -q $(LOCKED) -p everstep-cli --bin everstep -- settings --reference > docs/reference/settings.md.new
	mv docs/reference/settings.md.new docs/reference/settings.md

.PHONY: metrics
metrics: ## Write the page of all metrics from the code that counts
	EVERSTEP_TEST_WRITE_PAGES=1 cargo test -q $(LOCKED) -p everstep-cli --test metrics_page

.PHONY: openapi
openapi: ## Write the OpenAPI document from the code that serves it
	EVERSTEP_TEST_WRITE_PAGES=1 cargo test -q $(LOCKED) -p everstep-coordinator --test http -- openapi::the_committed

.PHONY: cli
cli: ## Write the page of the command from the code that reads the command line
	EVERSTEP_TEST_WRITE_PAGES=1 cargo test -q $(LOCKED) -p everstep-cli --test cli_page

.PHONY: transitions
transitions: ## Write the page of what each operation does in each status, from the engine's table
	cargo run -q $(LOCKED) -p everstep-cli --bin everstep -- settings --transitions > docs/reference/transitions.md.new
	mv docs/reference/transitions.md.new docs/reference/transitions.md

.PHONY: clean
clean: ## Remove what cargo built
	cargo clean
