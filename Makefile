# Everything from nothing: `make run` and `make test` create .venv, install and
# compile. Stamps in .venv keep a second call from doing it again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NATIVE := $(shell find native -type f) CMakeLists.txt pyproject.toml

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Ingot needs Python 3.11 or newer; '$(PYTHON)' is older. Set PYTHON=python3.11 or newer." >&2; exit 1; }
	@command -v "$${CXX:-c++}" >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1 || \
	  { echo "Ingot needs a C++20 compiler: install g++ 11+ or clang 14+ (on Debian: apt-get install g++), or set CXX." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(PIP) install --quiet "scikit-build-core>=0.11" "nanobind>=2.4" cmake ninja
	@touch $@

$(VENV)/.built: $(VENV)/.created $(NATIVE)
	$(PIP) install --quiet --no-build-isolation --editable '.[test]'
	@touch $@

build: $(VENV)/.built ## create .venv, install, compile

run: build ## inspect the embedded default model
	$(BIN)/ingot inspect

test: build ## the tests
	$(BIN)/python -m pytest

.PHONY: help build run test
