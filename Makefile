# Three commands are enough: `make up` starts a broker, `make cluster` three of them, `make test` runs every test.
# Each sets up what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiled in place, so a change to one of them must reach the build.
COMPILED := $(shell grep -o '"penstock\.[a-z_.]*"' setup.py | tr -d '"' | sed 's|\.|/|g; s|^|src/|')
BUILT_FROM := pyproject.toml setup.py $(COMPILED:=.py) $(wildcard $(COMPILED:=.pxd))
# What a broker needs is installed in less than a minute; what the tests need besides takes longer.
BROKER := $(VENV)/.broker-installed
CLUSTER := $(VENV)/.cluster-installed
DEV := $(VENV)/.dev-installed
LISTEN ?= 127.0.0.1:9092
DATA ?= ./penstock-data
# Where /metrics is: HOST:PORT, or empty for the default, 127.0.0.1:9308 or a free port.
METRICS ?=
# make up PROCESSES=4 runs four brokers, on consecutive ports from that of LISTEN on.
PROCESSES ?=
# make cluster BROKERS=5 ZOOKEEPERS=3 PORT=9092 FRESH=1: FRESH removes the data of the last one first.
BROKERS ?= 3
ZOOKEEPERS ?= 1
PORT ?= 9092
CLUSTER_DATA ?= ./penstock-cluster
FRESH ?=
WORKERS ?= 2
# make soak MINUTES=60 KILLS=200
MINUTES ?= 30
KILLS ?= 30
TESTS ?= tests
# make bench AGAINST=COMMIT compares with another commit instead of Apache Kafka; ROUNDS and ONLY narrow it down.
AGAINST ?=
ROUNDS ?=
ONLY ?=

# Tests start hundreds of brokers: modules are compiled once, into .cache, even where the environment forbids it.
TEST_PYTHON := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/.cache/pycache $(BIN)/python

.PHONY: help up cluster install test soak check lint format docs check-generated generate bench record kafka spark-jars sparks clean

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

# In the foreground of a terminal the broker is a job of its own, so that Ctrl-C stops it and not make, which then ends
# with its status. Ctrl-Z would leave such a job to be killed, so it does nothing.
up: $(BROKER) ## start a broker on :9092 with its data in ./penstock-data
	@up='$(BIN)/penstock up --listen $(LISTEN) --data $(DATA) $(if $(METRICS),--set metrics.listener=$(METRICS)) $(if $(PROCESSES),--processes $(PROCESSES))'; \
	case "$$(ps -o stat= -p $$$$ 2>/dev/null)" in *+*) trap '' TSTP; set -m; $$up;; *) exec $$up;; esac

# As a job of its own, for the reason above.
cluster: $(CLUSTER) ## start three brokers on :9092 to :9094 with ZooKeeper, their data in ./penstock-cluster
	@up='$(BIN)/penstock dev up --brokers $(BROKERS) --zookeepers $(ZOOKEEPERS) --port $(PORT) --data $(CLUSTER_DATA) $(if $(FRESH),--fresh)'; \
	case "$$(ps -o stat= -p $$$$ 2>/dev/null)" in *+*) trap '' TSTP; set -m; $$up;; *) exec $$up;; esac

install: $(DEV) ## make .venv with penstock and everything the tests need

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "penstock needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": try make PYTHON=python3.13 ...")'
	@$(PYTHON) -m venv $(VENV) || { echo "python3 cannot make virtual environments: on Debian, apt-get install python3-venv"; exit 1; }

$(BROKER): $(BUILT_FROM) | $(BIN)/python
	@echo "installing penstock into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(CLUSTER): $(BUILT_FROM) | $(BIN)/python
	@echo "installing penstock and ZooKeeper, from the jars of PySpark, into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cluster]'
	@touch $(BROKER) $@

$(DEV): $(BUILT_FROM) | $(BIN)/python
	@echo "installing penstock and what its tests need into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(BROKER) $(CLUSTER) $@

test: $(DEV) ## run the whole test suite
	$(TEST_PYTHON) -m pytest $(TESTS) --numprocesses $(WORKERS) --dist loadgroup --quiet

# These count kills instead of minutes.
KILL_TESTS := $(addprefix tests/cluster/test_,kill_during_produce.py kill_during_changes.py transactions_bad_days.py)
KILL_TESTS += tests/protocol/test_schedules.py::test_a_broker_that_is_killed_delivers_every_schedule_once
SPARK_KILL_TESTS := $(addprefix tests/spark/test_sink_,deaths.py kills.py driver_killed.py batch_kills.py executor_lost.py kill_matrix.py)

soak: $(DEV) ## bad days in random order and new seeds for MINUTES=30, and KILLS=30 of brokers and of Spark
	PENSTOCK_SOAK_MINUTES=$(MINUTES) PENSTOCK_TEST_KILLS=$(KILLS) $(TEST_PYTHON) -m pytest tests -m soak -s --quiet
	$(if $(filter-out 0,$(KILLS)),PENSTOCK_TEST_KILLS=$(KILLS) $(TEST_PYTHON) -m pytest $(KILL_TESTS) -s --quiet)
	$(if $(filter-out 0,$(KILLS)),PENSTOCK_TEST_SPARK_KILLS=$(KILLS) $(TEST_PYTHON) -m pytest $(SPARK_KILL_TESTS) -s --quiet)

# The loop of an edit: what finds most mistakes, in a fraction of the time of `make lint test`.
check: $(DEV) ## the fast half of lint and the quick unit tests, in less than three minutes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(TEST_PYTHON) -m pytest tests/unit -m "not slow" --numprocesses $(WORKERS) --quiet

lint: $(DEV) ## formatting, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory check-generated

format: $(DEV) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(DEV) ## regenerate the codec and the error classes
	$(BIN)/python tools/generate_wire.py
	$(BIN)/python tools/generate_errors.py

docs: $(DEV) ## regenerate docs/reference and docs/differences.md from the code
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python tools/record_differential.py --page

check-generated: $(DEV)
	$(BIN)/python tools/generate_wire.py --check
	$(BIN)/python tools/generate_errors.py --check
	$(BIN)/python tools/generate_docs.py --check

kafka: $(DEV) ## fetch Apache Kafka's jars, for its tools in the tests and for the comparison (needs Maven)
	$(BIN)/python tools/kafka_jars.py

spark-jars: $(DEV) ## fetch the jars of Spark's own Kafka connector, for a test and the comparison (needs Maven)
	$(BIN)/python tools/spark_jars.py

sparks: $(DEV) ## install other versions of PySpark beside the one of .venv, for the tests of them
	$(BIN)/python tools/sparks.py

record: kafka ## record Apache Kafka's responses again for the differential tests
	$(BIN)/python tools/record_differential.py

bench: $(if $(AGAINST),$(DEV),kafka spark-jars) ## compare with Apache Kafka and write bench/RESULTS.md, or AGAINST=COMMIT
	$(BIN)/python -m bench.run $(if $(AGAINST),--against $(AGAINST)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY))

clean:
	rm -rf $(VENV) build .cache src/*.egg-info
	find src -name '*.so' -delete
