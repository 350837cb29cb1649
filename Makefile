# The two commands are `make run` and `make test`; the rest are longer searches and measurements.

CARGO ?= cargo
DATA  ?= varve-data
LISTEN ?= 127.0.0.1:5433

.PHONY: help run lab debug-build test test-rust test-e2e fmt lint bench slt random-queries tpch tools fuzz fuzz-targets crash faults models clean-data

help:
	@echo 'make run     build, start a server on $(DATA) and say how to connect'
	@echo 'make test    everything: format, lints, tidy, unit, crash and end-to-end tests'
	@echo 'make bench   compare with PostgreSQL on this machine (about 45 minutes; ROUNDS=1 SECONDS=5 for a look)'
	@echo 'make slt     thousands of statements on Varve and PostgreSQL 15 in the same run, then QUERIES (5000) random ones; FILES=word for some files alone; ENGINE=cow or all for tables of memory-oriented engines'
	@echo 'make random-queries  QUERIES (50000) random statements beside PostgreSQL 15, SEED=n to repeat a run; then the planted faults'
	@echo 'make lab     build target/release/varve-lab: published experiments, run again (docs/experiments.md)'
	@echo 'make tpch    the 22 queries of TPC-H at scale factor 1 (SCALE=1), with the answers of DuckDB'
	@echo 'make tools   psql, pgbench, psycopg, SQLAlchemy, frameworks of Python, Node, Java, Go and Rust, go-tpc, go-ycsb; kill -9 under TPC-C'
	@echo 'make fuzz    throw damaged messages at a server for SECONDS (600)'
	@echo 'make models  search schedules of the concurrent code under model checkers (EXECUTIONS=200000 of each model)'
	@echo 'make fuzz-targets  search every format and input with libFuzzer for SECONDS (600); see fuzz/README.md'
	@echo 'make crash   kill -9 under load, 20 rounds and 60 kills, and a long search through crash images'
	@echo 'make faults  every device fault at every n-th operation (STEP=1), and the planted faults that the harness must find'

# Published experiments beside their published values: `make lab`, then `target/release/varve-lab experiment list`.
lab:
	$(CARGO) build --release --workspace --bin varve-lab

# Builds what a user runs; the server prints how to connect, Ctrl-C stops it.
run:
	@scripts/setup build
	$(CARGO) build --profile quick --workspace --bin varve
	@echo
	@echo '  psql -h $(firstword $(subst :, ,$(LISTEN))) -p $(lastword $(subst :, ,$(LISTEN))) -U postgres postgres'
	@echo
	exec target/quick/varve serve $(DATA) --listen $(LISTEN)

test: test-rust test-e2e
	@echo 'make test: all green'

test-rust: fmt lint
	$(CARGO) test --workspace

fmt:
	@scripts/setup test
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# The program with its assertions on, by the selection of packages that the tests are built with: another one compiles DataFusion
# once more (docs/decisions, 0806).
debug-build:
	$(CARGO) test --workspace --no-run --test program

# Short slices of the end-to-end tests.
test-e2e: debug-build
	@scripts/setup test
	e2e/run

bench:
	@scripts/setup bench
	$(CARGO) build --release --workspace --bin varve --bin varve-lab
	bench/compare --rounds $(or $(ROUNDS),5) --seconds $(or $(SECONDS),30)

slt: debug-build
	@scripts/setup test
	e2e/slt $(FILES) $(if $(ENGINE),--engine $(ENGINE))
	$(if $(FILES),,e2e/random-queries --queries $(or $(QUERIES),5000) $(if $(ENGINE),--engine $(ENGINE)))
	$(if $(FILES),,$(if $(ENGINE),e2e/isolation --engine $(ENGINE) --schedules 1000))
	$(if $(FILES),,$(if $(ENGINE),e2e/list-append --engine $(ENGINE) --seconds 30 --kills 6))
	$(if $(FILES),,$(if $(ENGINE),e2e/tools engines --engine $(ENGINE)))

random-queries: debug-build
	@scripts/setup test
	e2e/random-queries --queries $(or $(QUERIES),50000) $(if $(SEED),--seed $(SEED))
	e2e/random-queries --planted --queries 5000 --seed 1

tpch:
	@scripts/setup test
	$(CARGO) build --release --workspace --bin varve
	VARVE_BIN=target/release/varve e2e/tpch --scale $(or $(SCALE),1)

tools:
	@scripts/setup test
	$(CARGO) build --release --workspace --bin varve
	VARVE_BIN=target/release/varve e2e/dump
	VARVE_BIN=target/release/varve e2e/tools psql pgbench psycopg sqlalchemy django asyncpg pgcli sequelize node-pg-migrate \
	    golang-migrate hibernate liquibase pgjdbc sqlx go-tpc go-ycsb
	for server in varve varve-packed varve-nvm; do \
	    VARVE_BIN=target/release/varve e2e/tpcc-kill9 --server $$server --rounds $(or $(ROUNDS),10) || exit 1; \
	done

fuzz: debug-build
	@scripts/setup test
	$(CARGO) test --workspace --no-run --example wire_fuzz
	e2e/fuzz --seconds $(or $(SECONDS),600)
	target/debug/examples/wire_fuzz --seconds $(or $(SECONDS),600)

models:
	VARVE_MODELS_EXECUTIONS=$(or $(EXECUTIONS),200000) $(CARGO) test --release -p varve-models -- --nocapture

fuzz-targets:
	@scripts/setup fuzz
	fuzz/run --seconds $(or $(SECONDS),600)

crash:
	@scripts/setup test
	$(CARGO) build --release --workspace --bin varve
	for server in varve varve-nvm-packed; do \
	    VARVE_BIN=target/release/varve e2e/kill9 --server $$server --rounds $(or $(ROUNDS),20) || exit 1; \
	done
	VARVE_BIN=target/release/varve e2e/list-append --seconds $(or $(SECONDS),300) --kills 60 --clients 16
	for subject in pages trees engine crowd; do \
	    $(CARGO) run --release -p varve-sim --example crash -- --subject $$subject --images $(or $(IMAGES),20000) || exit 1; \
	done
	$(CARGO) run --release -p varve-sim --example crash -- --parts --images $(or $(IMAGES),100000)
	$(CARGO) run --release -p varve-sim --example crash -- --parts --files --images $(or $(FILE_IMAGES),4000)
	IMAGES=$(or $(NVM_IMAGES),200000) $(CARGO) test --release -p varve-memory --test memory -- \
	    --ignored --nocapture --test-threads 1 many_

faults:
	@scripts/setup test
	$(CARGO) run --release -p varve-sim --example faults -- --step $(or $(STEP),1)
	$(CARGO) run --release -p varve-sim --example crash -- --planted

clean-data:
	rm -rf -- $(DATA)
