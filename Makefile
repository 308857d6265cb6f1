# The environment is made on first use and again when the dependencies change.
.DEFAULT_GOAL := check
PYTHON ?= python3
JOBS ?= 2
BENCHMARKS ?= step_cost block_step engine variance augmentation small battery
RESULTS ?= results
BIN := .venv/bin
GPU := PYTHONPATH=src $(PYTHON)
READY := .venv/.ready
FAST := "not slow and not browser and not documents"
# Tests of the whole library, as users run it: shapes are checked in those of the rooms.
WHOLE := models judges cli door documents

# Benchmark data laid beside the checkout are found without setting anything.
QSGP_DATA ?= $(abspath $(wildcard ../shared/data))
ifneq ($(QSGP_DATA),)
export QSGP_DATA
endif

.PHONY: demo test quick test-slow test-browser lint check bench results reproduce-fast docs test-gpu bench-gpu gpu-session clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
# torch first and pinned: an open range would fetch the newest build with gigabytes of CUDA libraries.
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,cli,data,export,plots,bench,docs]"
	touch $@

demo: $(READY)
	$(BIN)/python -m qsgp demo

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) -m $(FAST) $(addprefix --ignore=tests/,$(WHOLE))
	QSGP_SHAPES=off $(BIN)/python -m pytest -n $(JOBS) -m $(FAST) $(addprefix tests/,$(WHOLE))

# One honest test of every room and all that average over every draw: under 90 s on two cores.
quick: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS) @tests/quick.txt

# Batteries of minutes: run after the tests by .ci/run.
test-slow: $(READY)
	QSGP_SHAPES=off $(BIN)/python -m pytest -n $(JOBS) -m "slow and not bench"

# The report in a real browser: needs Chromium (Debian and Ubuntu: apt-get install chromium).
test-browser: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt playwright
	$(BIN)/python -m pytest -m browser

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

# First the batteries in full (20 kills, 10,000 random problems), then the tables.
bench: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) -m bench
	set -e; for name in $(BENCHMARKS); do echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py; done

# Every experiment of the paper at small sizes, into a folder that is thrown away. Two cores should take less than 8 minutes;
# a slow machine is told, not failed.
reproduce-fast: $(READY)
	set -e; out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; began=$$(date +%s); \
	$(BIN)/python -m qsgp reproduce all --fast --device cpu -o "$$out"; \
	spent=$$(( $$(date +%s) - began )); echo "qsgp reproduce all --fast: $$spent s"; \
	if [ $$spent -gt 480 ]; then echo "Warning: that is more than 8 minutes." >&2; fi

# docs/results.md and its pictures, from the files in docs/results; nothing is measured.
results: $(READY)
	$(BIN)/python benchmarks/results.py

# What the documents say must be true: links lead somewhere, named functions and tests exist, examples run. Then the site:
# docs/_build/html/index.html, every warning an error, the gallery's scripts run unless they have not changed.
docs: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow" $(addprefix tests/documents/test_,$(addsuffix .py,docs paper_map examples readme cli_docs architecture results))
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going docs docs/_build/html
	$(BIN)/python -m pytest tests/documents/test_site.py

# These two run with the host's own Python and install nothing: a machine with a GPU often has no network.
test-gpu:
	$(GPU) -m pytest -m gpu

# The targets on a GPU, in the order of their weight; what RESULTS holds is not measured again, so a run cut short is gone on
# with. Some 19 minutes on one H200, added up from its parts.
bench-gpu:
	mkdir -p $(RESULTS)
	$(GPU) benchmarks/uci.py --device cuda --models qsgp exact calibrated --json $(RESULTS)/uci.json
	$(GPU) benchmarks/mnist.py --methods newton labels --json $(RESULTS)/mnist.json
	$(GPU) benchmarks/optimisers.py --methods dual --json $(RESULTS)/optimisers.json
	$(GPU) benchmarks/covariance.py --learn 4000 --json $(RESULTS)/covariance.json
	$(GPU) benchmarks/robot_arm.py --json $(RESULTS)/robot_arm.json
	$(GPU) benchmarks/lengthscales.py --json $(RESULTS)/lengthscales.json
	$(GPU) benchmarks/calibration.py --kernels matern32 --json $(RESULTS)/calibration.json

# All that is missing of a GPU, in calls of MINUTES that go on where the last one was; GPU_OUT has the files.
MINUTES ?= 9.5
GPU_OUT ?= $(RESULTS)/gpu
gpu-session:
	$(GPU) benchmarks/gpu_session.py --out $(GPU_OUT) --minutes $(MINUTES)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis docs/_build docs/gallery
