# Each target does its own set-up. All it needs is Python 3.11 or newer, make, and a package registry.

PYTHON ?= python3
# Test files at a time: on two cores a third one uses the time in which the others wait. Each starts databases, servers and
# models of its own: not one for every core of a large machine.
WORKERS ?= 3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP_INSTALL = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
SOURCES := trajkit tests bench docs
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Folders whose tests start no service, browser or model.
QUICK := tests/schema tests/store tests/formats
BENCHMARKS = $(shell grep -l '__main__' bench/*.py)

# What the tests use and only the system's package manager has, each with a program that shows it is there already
# (another Java, or another Node, will do): processes, a Postgres, a browser, what runs other people's tools, and
# what makes a certificate.
# ClickHouse and the gateway come from the package registry.
SYSTEM_PACKAGES := procps:ps postgresql:postgres chromium:chromium default-jre-headless:java nodejs:node npm:npm \
	openssl:openssl

# pip compiles nothing here (`--no-compile`), so let Python keep what it compiles: else each of the thousands of processes
# of the tests compiles torch and transformers again (11 s of processor time for each instead of 5).
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo loop check test test-all ready read lint bench docs site system clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '%-14s %s\n' "$$target" "$$text"; done

install: $(INSTALLED) ## Make .venv with everything in it; .venv/bin/trajkit then works

# pip 26 installs twice as fast as the pip of Python 3.11. Exact pins need no resolving, so two of it install a half each
# at a time; the last one installs what they could not, or says why.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trajkit needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 install")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) pip==26.3
	for half in 0 1; do awk "/^[^#]/ && NR % 2 == $$half" constraints.txt >$(VENV)/half$$half; done
	printf '%s\n' $(VENV)/half0 $(VENV)/half1 | xargs -P 2 -I '{}' $(PIP_INSTALL) --no-deps -r '{}' 2>$(VENV)/halves.log || true
	$(PIP_INSTALL) -c constraints.txt -e '.[all,dev]'
	@touch $@

demo: $(INSTALLED) ## Play, export, convert and tune on this machine, in demo/ (about five minutes)
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash recipes/demo.sh demo

loop: $(INSTALLED) ## A tiny model gets better by its own good episodes and then by reinforcement learning, in loop/ (six to fifteen minutes)
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash recipes/loop.sh loop $(THROUGH)

check: lint ## Lint, then the tests of the folders that start no service (about three minutes)
	$(PYTEST) -m 'not gpu and not full' $(QUICK)

test: ready ## What CI runs: lint, then every test but those of a GPU and the full matrices
	$(PYTEST) -m 'not gpu and not full'

test-all: export TRAJKIT_FUZZ := 40
test-all: ready ## Before a release: lint, then every test that needs no GPU, the full matrices too
	$(PYTEST) -m 'not gpu'

# The slow part of lint uses one core. Reading all tests on another one compiles them, and what they import, for all workers.
ready:
	@$(MAKE) --no-print-directory -j3 lint system read

read: $(INSTALLED)
	@$(BIN)/python -m pytest --collect-only -qq -m 'not gpu' >/dev/null || true  # pytest itself will say what is wrong

lint: $(INSTALLED) ## Style, types, layers and spelling
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy & typed=$$!; $(BIN)/lint-imports \
		&& $(BIN)/codespell trajkit bench docs recipes schemas *.md Makefile pyproject.toml .ci; \
	others=$$?; wait $$typed && exit $$others

bench: $(INSTALLED) ## The benchmarks, one after the other
	@missed=0; for file in $(BENCHMARKS); do echo "== $$file"; $(BIN)/python "$$file" || missed=1; done; exit $$missed

site: $(INSTALLED) ## Build the static site of docs/ in site/
	$(BIN)/zensical build --clean --strict

docs: $(INSTALLED) ## Write again what is generated: docs/cli.md and schemas/
	$(BIN)/python docs/generate.py

system: ## Install what only the system's package manager has, where it may
	@missing=""; for each in $(SYSTEM_PACKAGES); do package=$${each%%:*}; \
		dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null | grep -q "ok installed" || command -v "$${each#*:}" >/dev/null \
			|| missing="$$missing $$package"; done; export DEBIAN_FRONTEND=noninteractive; \
	if [ -z "$$missing" ]; then echo "system: everything is there"; \
	elif ! command -v apt-get >/dev/null; then echo "system: no apt-get; tests that need these will skip:$$missing"; \
	elif [ "$$(id -u)" = 0 ]; then apt-get update -q && apt-get install -qy --no-install-recommends $$missing; \
	elif sudo -n true 2>/dev/null; then \
		sudo -n apt-get update -q && sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; \
	else echo "system: not root and no sudo; tests that need these will skip:$$missing"; fi

clean: ## Remove .venv and what the tools leave behind
	rm -rf $(VENV) .node .services .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
	find trajkit tests bench docs -name __pycache__ -type d -exec rm -rf {} +
