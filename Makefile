# Every target sets itself up: a virtual environment in .venv with the versions pinned in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs
JOBS ?= 4

.PHONY: help run test lint unit smoke fuzz kill-history bench mutants caches conformance fgd check-why shadow rehearsals backtest readability controlplane test-live bench-live screenshots docs clean
.DEFAULT_GOAL := help

help: ## show the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpuconsole needs Python 3.11 or newer; name one with make PYTHON=python3.12 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: $(STAMP) ## open the console on the embedded simulator with the default fixture
	@$(BIN)/gpuconsole run

test: lint unit conformance ## ruff, mypy --strict, lint-imports, pytest, and what real schedulers decided

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The console's tests mostly wait, so that several processes help also where there is one core.
unit: $(STAMP)
	$(BIN)/pytest -n $(JOBS) --dist loadfile

fuzz: $(STAMP) ## give 2,000 damaged files of all kinds to all commands
	$(BIN)/python -m tests.tools.fuzz

kill-history: $(STAMP) ## kill the writer of a history 200 times; nothing that was committed may be lost
	$(BIN)/python -m tests.tools.kill_history

smoke: $(STAMP) ## drive the console in a real terminal (needs tmux) and press every key
	$(BIN)/python -m tests.tools.smoke

bench: $(STAMP) ## measure speed, as times and as ratios to a calibration loop (BENCH=--quick: fewer runs)
	$(BIN)/python -m tests.tools.bench $(BENCH)

mutants: $(STAMP) ## break the rules one by one; each edit has to turn a test red
	$(BIN)/python -m tests.tools.mutants

caches: $(STAMP) ## compare what Kueue decides with and without each of its caches, on a part chosen by seed; ARGS="--part 1" for all
	$(BIN)/python -m tests.tools.caches $(or $(ARGS),--part 0.03)

conformance: $(STAMP) ## compare with what Kueue, Volcano and KAI decided (needs ../shared/conformance)
	$(BIN)/python -m tests.conformance

shadow: $(STAMP) ## check each decision of recorded Kueues against the engine (needs ../shared/conformance/live)
	for file in ../shared/conformance/live/*.jsonl.gz; do $(BIN)/gpuconsole shadow $$file || [ $$? -eq 1 ] || exit; done
	$(BIN)/python -m tests.tools.rehearsals

rehearsals: $(STAMP) ## compare what-ifs of recorded submissions with what Kueue then did (needs ../shared/conformance/live)
	$(BIN)/python -m tests.tools.rehearsals $(ARGS)

backtest: $(STAMP) ## compare estimated starts with a real trace (needs ../shared/traces); ARGS="--every 24h" for fewer
	$(BIN)/python -m tests.tools.backtest $(ARGS)

check-why: $(STAMP) ## compare the answers of why and preemptions with Kueue's (needs ../shared/conformance)
	$(BIN)/python -m tests.tools.check_why $(ARGS)

fgd: $(STAMP) ## replay FGD's traces and compare with its paper (needs ../shared/traces); ARGS=--quick for one workload
	$(BIN)/python -m tests.tools.fgd $(ARGS)

readability: $(STAMP) ## measure names, texts, module sizes, import cycles (needs ../shared/tools); ARGS="--show 20" for examples
	@if [ -f ../shared/tools/readability.py ]; then $(BIN)/python ../shared/tools/readability.py --root . $(ARGS); \
	else echo 'no readability tool beside the project: nothing was measured' >&2; fi

controlplane: $(STAMP) ## build a control plane for the live tests (needs Go; 7 to 30 minutes the first time)
	@$(BIN)/python -m tests.controlplane.build $(BUILD)

test-live: controlplane ## test on a real API server, which is started on 127.0.0.1 and stopped again
	$(BIN)/pytest tests/live -m live --durations=10 $(LIVE)

bench-live: controlplane ## measure the console on a real API server with 5,000 nodes, 10,000 Workloads, 10,000 pods
	$(BIN)/python -m tests.live.bench

screenshots: $(STAMP) ## draw docs/*.svg from the default fixture
	$(BIN)/python -m tests.tools.screenshots

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(DOCS_STAMP) ## generate the reference pages, and build the documentation site into build/site
	$(BIN)/python -m tests.tools.reference
	$(BIN)/zensical build --strict

clean: ## remove what the targets made
	rm -rf .venv .cache build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
