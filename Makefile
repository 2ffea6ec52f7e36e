# Everything a contributor or user runs. `make` alone lists it.

SHELL := /bin/bash
# Hundreds of processes of the tests read the same modules: compiling them each time takes longer than many tests.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

PYTHON := .venv/bin/python
EMACS ?= emacs
CASK := $(shell command -v cask)
ELISP := $(wildcard elisp/*.el)
# Where end-to-end tests are: reading all others first takes half a minute.
E2E := tests/e2e tests/faults tests/cli

.PHONY: help setup demo test spec-mutants test-py test-el test-e2e test-edits test-properties test-kill test-simulation test-shell test-faults test-distributed bench-distributed bench-missions bench-growth bench-scale test-remote test-otel size test-install test-install-debian fuzz-lisp lint lint-py lint-el check bench bench-memory bench-peers bench-start trace-prompt screenshots fixture doc dist melpa checksums check-tag release clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what is missing: Emacs and its packages, .venv
	@scripts/setup.sh

demo: setup ## Run the main job without any key: in Emacs on a terminal, else in batch; LOCAL=1: with a model of this machine
	@LOCAL=$(LOCAL) scripts/demo.sh

test: test-py test-el test-e2e ## Run all tests

spec-mutants: setup ## Break what 20 scenarios of the specification describe, one at a time: their tests must notice
	$(PYTHON) -m tests.spec.mutants $(if $(SEED),--seed $(SEED))

test-py: setup ## Run the Python tests
	$(PYTHON) -m pytest -n 2 -m "not e2e"

test-el: setup ## Run the Emacs tests: with Cask where it is installed, else with Emacs alone
ifneq ($(CASK),)
	$(CASK) install
	$(CASK) exec ert-runner -L elisp -L tests/elisp tests/elisp
else
	$(EMACS) -Q --batch -l tests/elisp/run.el
endif

test-e2e: setup ## Run the end-to-end tests: real daemon, real Emacs, real server
	$(PYTHON) -m pytest -n 3 -m e2e $(E2E)

lint: lint-py lint-el ## Check style and types of both languages

lint-py: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

lint-el: setup ## Byte-compile with warnings as errors, checkdoc, check-declare, package-lint; another Emacs: EMACS=…
	$(EMACS) --batch -l scripts/lint.el $(ELISP)

check: lint test ## Lint, then all tests

# More of the same: SEED=2 make test-kill
SEED ?= 1

test-kill: setup ## Kill the daemon, Emacs or both at 200 random moments of a conversation; nothing may be lost or doubled
	$(PYTHON) -m tests.kill --times 200 --seed $(SEED)

test-simulation: setup ## Run 2,000 random schedules of a conversation, in virtual time: what the model is sent must be what the log says
	$(PYTHON) -m tests.simulation --schedules 2000 --seed $(SEED) --jobs 2

test-shell: setup ## Compare what is read of random command lines with what a real bash runs, for five minutes
	$(PYTHON) -m tests.policy.fuzz --seconds 300 --seed $(SEED)

fuzz-lisp: setup ## Look for a program that crashes the mission language, guided by coverage, for MINUTES=60
	@$(PYTHON) -c "import atheris" 2>/dev/null || $(PYTHON) -m pip install --quiet "atheris>=2.3"
	$(PYTHON) -m tests.lisp.fuzz --seconds $$(( $(or $(MINUTES),60) * 60 )) --seed $(SEED)

test-distributed: setup ## Run missions over items on a real Dask scheduler, one of whose two workers is killed
	$(PYTHON) -m pytest -n 0 tests/mission/test_over.py tests/e2e/test_distributed.py

bench-distributed: setup ## Run 2,000 missions on one Dask worker, on two, and by a script written by hand
	$(PYTHON) -m tests.bench.distributed --items $(or $(ITEMS),2000)

bench-missions: setup ## Run missions with a model of 0, 200 and 2,000 ms, beside plain asyncio and pydantic-ai
	$(PYTHON) -m tests.bench.missions

bench-growth: setup ## Print what each operation costs up to 2,000 turns, 10,000 sessions, 1,000 agents; takes half an hour
	$(PYTHON) -m tests.bench growth --full

bench-scale: setup ## Print what a daemon takes in which many sessions answer at once
	$(PYTHON) -m tests.bench.scale

test-remote: setup ## Use the daemon of another machine: a real sshd on this one, behind a line that is slow, silent or cut
	$(PYTHON) -m pytest -n 0 -s tests/e2e/test_remote.py

test-otel: setup ## Have a real daemon send its spans and numbers to an OTLP receiver
	$(PYTHON) -m pytest -n 0 tests/e2e/test_telemetry.py

size: ## Print how much a usual installation takes: at most 40 distributions and 90 MB; EXTRA=full: with more
	@scripts/size.sh

test-install: setup ## From make dist to the first answer in an empty home: fetches the server's Python packages
	PYAGENTD_TEST_INSTALL=1 $(PYTHON) -m pytest -n 0 -s tests/e2e/test_install.py

test-install-debian: setup ## The same in bare Debian 12 and 13, by an ordinary account: needs root and debootstrap
	PYAGENTD_TEST_INSTALL=debian $(PYTHON) -m pytest -n 0 -s tests/e2e/test_install.py

test-litellm: setup ## Have a conversation through LiteLLM's proxy, in both directions: fetches its Python packages
	@test -x .litellm/bin/litellm || { $(PYTHON) -m venv .litellm && .litellm/bin/pip install --quiet "litellm[proxy]>=1.80"; }
	$(PYTHON) -m pytest -n 0 tests/e2e/test_litellm.py

test-faults: setup ## Have every write of a turn fail in every way
	$(PYTHON) -m tests.faults --seed $(SEED)

test-edits: setup ## Edit random documents 20,000 times, in Emacs and elsewhere, and one by all at once (PYAGENTD_GPTEL: gptel, too)
	PYAGENTD_EDITS=20000 PYAGENTD_CONVERSATIONS=2000 $(PYTHON) -m pytest -n 2 tests/store/test_edits.py tests/store/test_files.py
	PYAGENTD_WRITES=300 PYAGENTD_TEST_SEED=$(SEED) $(PYTHON) -m pytest -n 2 tests/e2e/test_many_writers.py

test-properties: setup ## Try every property with 1,000 examples and more, where the tests take 40
	PYAGENTD_EXAMPLES=1000 PYAGENTD_CONVERSATIONS=1000 $(PYTHON) -m pytest -n 2 -m "hypothesis and not e2e"

bench: setup ## Print the benchmarks, each beside its reference
	$(PYTHON) -m tests.bench

bench-peers: setup ## Print what the same job takes in other programs, from .peers, where they can be installed
	-test -d .peers || python3 -m venv .peers
	-.peers/bin/pip install -q 'pydantic-ai-slim[anthropic]' openai-agents
	-npm install --prefix .peers --no-fund --no-audit --loglevel error @anthropic-ai/claude-code opencode-ai
	$(PYTHON) -m tests.bench.rivals --python $(CURDIR)/.peers/bin/python --bin $(CURDIR)/.peers/node_modules/.bin

bench-start: setup ## Print what the daemon imports, reads and opens before hello and before its first request
	$(PYTHON) -m tests.bench.start_table

bench-memory: setup ## Print the daemon's memory before, during and after a large call and 400 clients
	$(PYTHON) -m tests.bench.memory

trace-prompt: setup ## Print how many files and functions a prompt and a tool call pass
	$(PYTHON) -m tests.bench.trace_prompt $(if $(LIST),--list)

screenshots: setup ## Make docs/screenshots/ again, on a display that nobody sees
	@scripts/screenshots.sh

fixture: setup ## Make tests/fixtures/VERSION.tar.gz, which later versions open in their tests: once, before a release
	@scripts/fixture.sh

doc: setup ## Make build/manual/: the manual as Info and, where makeinfo is installed, as one HTML page
	@$(PYTHON) scripts/manual.py

dist: ## Make dist/: the Emacs package, and wheel and sdist of the server; needs Python and Emacs alone
	@python3 scripts/dist.py

melpa: ## Build the Emacs package of the latest commit as MELPA does: PACKAGE_BUILD=a checkout of package-build
	@scripts/melpa.sh

checksums: ## Write dist/SHA256SUMS of what `make dist` made
	cd dist && rm -f SHA256SUMS && sha256sum * > SHA256SUMS

check-tag: ## Check that TAG=v1.2.3 is the version
	@version=v$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' pyagentd/__init__.py); \
	  [ "$(TAG)" = "$$version" ] || { echo "The tag $(TAG) is not the version $$version" >&2; exit 1; }

release: check-tag ## Publish dist/ as the release of TAG, with gh; the release workflow does this
	gh release create "$(TAG)" --verify-tag --title "$(TAG)" --notes-file CHANGELOG.md dist/*

clean: ## Remove what was built (not your sessions)
	rm -rf .venv .litellm .nbb .mcp-servers .cask .demo .fuzz-lisp build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find elisp tests -name '*.elc' -delete
