# Each target creates .venv and installs and compiles what it needs. Stamp files in .venv keep later
# calls from doing it again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_CONSTRAINT=$(CURDIR)/requirements.lock $(BIN)/python -m pip --disable-pip-version-check --quiet
NATIVE := $(shell find native -type f -name '*.cpp' -o -type f -name '*.h') CMakeLists.txt
CXX_FILES := $(filter %.cpp %.h,$(NATIVE))

# The peer in the oracle tests: built without this machine's own instructions, because
# gcc 12 miscompiles its AMX set-up, and without what the tests do not use.
LLAMA_CPP := llama-cpp-python==0.3.36
LLAMA_CPP_FLAGS := -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF \
  -DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/tests/oracle/llama_cpp.cmake

.DEFAULT_GOAL := help
.PHONY: help build run test lint format test-oracle test-compared test-clients test-ray test-ray-clients test-peer test-sanitized test-arm test-cross test-abi3 test-gpu \
  test-gpu-interpreter gpu-interpreted gpu-compiled-nvidia gpu-compiled-amd fuzz fuzz-models soak chaos coverage coverage-native \
  mutants site site-serve bench lock wheels clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null 2>&1 && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Ingot needs Python 3.11 or newer as '$(PYTHON)': install it, or call make PYTHON=/path/to/python3.11." >&2; exit 1; }
	@command -v "$${CXX:-c++}" >/dev/null 2>&1 || \
	  { echo "Ingot needs a C++20 compiler as '$${CXX:-c++}': install g++ 12 or newer or clang 14 or newer (Debian: apt-get install g++), or set CXX." >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || \
	  { echo "Ingot needs the headers of '$(PYTHON)' to compile its core: install them (Debian: apt-get install python3-dev)." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Ingot needs the modules venv and ensurepip of '$(PYTHON)': install them (Debian: apt-get install python3-venv)." >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install scikit-build-core nanobind cmake ninja
	@touch $@

$(VENV)/.built: $(VENV)/.created $(NATIVE) pyproject.toml
	@echo "installing ingot into $(VENV), compiling its native core (about three minutes the first time)"
	@$(PIP) install --no-build-isolation --editable '.[test]'
	@$(BIN)/python -m compileall -q src/ingot
	@touch $@

$(VENV)/.lint: $(VENV)/.built
	@$(PIP) install --no-build-isolation --editable '.[lint]'
	@touch $@

$(VENV)/.peer: $(VENV)/.built
	@echo "installing llama.cpp, which is compiled (about three minutes the first time)"
	@CMAKE_ARGS="$(LLAMA_CPP_FLAGS)" $(PIP) install $(LLAMA_CPP)
	@touch $@

$(VENV)/.oracle: $(VENV)/.peer
	@echo "installing the oracles"
	@$(PIP) install setuptools wheel  # what one of lm-eval's packages is built with
	@$(PIP) install --no-build-isolation --editable '.[oracle]'
	@$(BIN)/ingot pull default >/dev/null
	@touch $@

$(VENV)/.bench: $(VENV)/.oracle
	@$(PIP) install --no-build-isolation --editable '.[bench]'
	@touch $@

# What Triton's interpreter has in other versions than the rest.
INTERPRETER := build/interpreter
TRITON_CACHE := build/triton

$(VENV)/.gpu: $(VENV)/.built tests/gpu/requirements.txt
	@echo "installing PyTorch and Triton for the tests of the GPU backend"
	@$(PIP) install --no-build-isolation --editable '.[gpu-test]'
	@$(BIN)/python -m pip --disable-pip-version-check --quiet install --upgrade --target $(INTERPRETER) -r tests/gpu/requirements.txt
	@touch $@

build: $(VENV)/.built ## create .venv, install, compile

run: build ## answer an example prompt with the default model
	@$(BIN)/ingot run --temperature 0 </dev/null

test: build ## run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.lint ## check style, types, layer order and C++ formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --follow-imports=silent src/ingot/machine/windows.py src/ingot/sampling/grammar/trial_main.py
	$(BIN)/mypy --platform darwin --follow-imports=silent src/ingot/machine
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(VENV)/.lint ## format Python and C++
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

test-oracle: test-sanitized test-compared ## the slow tests: sanitizers, and comparisons with other implementations

# Tests on Ray want a process and both cores for themselves: test-ray.
test-compared: $(VENV)/.oracle ## compare with gguf, tokenizers, transformers, llama.cpp
	$(BIN)/python -m pytest -n 2 --dist loadfile -m oracle --ignore tests/on_ray

# Clients of other projects, each with what it needs, apart from our own environment.
CLIENTS := build/clients
NODE_CLIENTS := build/clients-node

$(CLIENTS)/.installed: tests/clients/requirements.txt
	@echo "installing the clients of other projects into $(CLIENTS) (minutes the first time)"
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@touch $@

# The lock has no address of a registry: npm install --package-lock-only --omit-lockfile-registry-resolved
$(NODE_CLIENTS)/.installed: tests/clients/node/package.json tests/clients/node/package-lock.json
	@mkdir -p $(NODE_CLIENTS) && cp $^ $(NODE_CLIENTS)
	@if command -v npm >/dev/null 2>&1; then \
	  npm ci --prefix $(NODE_CLIENTS) --no-audit --no-fund --silent; \
	  else echo "npm is not here: the clients in JavaScript are skipped" >&2; fi
	@touch $@

test-clients: $(VENV)/.built $(CLIENTS)/.installed $(NODE_CLIENTS)/.installed ## run clients of other projects against the server
	$(BIN)/python -m pytest -m oracle tests/clients

test-ray: $(VENV)/.oracle ## the tests on Ray, also the long ones, and those of the clients against two replicas
	$(BIN)/python -m pytest -m oracle tests/on_ray
	$(BIN)/python -m pytest -m oracle tests/on_ray/long_on_ray.py  # beside its folder, pytest would leave it out
	$(ON_RAY) $(BIN)/python -m pytest -W ignore -k '$(NOT_ON_RAY)' $(ASKED_ON_RAY)
	$(ON_RAY) $(BIN)/python -m pytest -W ignore -m oracle tests/server/page/test_page_real.py

# What clients of all families ask. Servers that tests make in their own process are replicas on one Ray cluster then
# (tests/server/two_replicas.py). Left out are the tests of a server's process: its options, signals, logs, sockets and
# TLS, limits of memory, bodies and descriptors, confinement and deployment, many models; those that call the
# server's own objects; and downloads, for which tests replace the hub in their process.
ON_RAY := INGOT_TEST_SERVE="--ray --replicas 2 --replica-cpus 0.5"
ASKED_ON_RAY := $(patsubst %,tests/server/test_%.py,openai_chat openai_completions anthropic ollama ollama_replies responses \
  long_responses llama_completion batches adapters_served threads timings parameters other_servers enable_thinking \
  scripted_tool_calls thinking_budget llama_infill encoder_decoders_served llama_endpoints tool_call_formats llama_slots \
  mcp mcp_rounds)
# Single tests that read the log of the process (a replica's is elsewhere), find the model at one time (replicas find it
# at two), take threads away from the process, set its constants, see what it does before it starts, or break a tool
# server of one replica and look at that of the other.
NOT_ON_RAY := not logged and not no_v1 and not without_threads and not started_again and not listed_and_called and \
  not end_with_the_server and not of_a_real_server_run_tools and not tool_that_breaks

# The same with clients of other projects.
test-ray-clients: $(VENV)/.oracle $(CLIENTS)/.installed $(NODE_CLIENTS)/.installed ## run clients of other projects against two replicas
	$(ON_RAY) $(BIN)/python -m pytest -W ignore -m oracle tests/clients

test-peer: $(VENV)/.peer ## compare tiny models of every architecture with llama.cpp (part of test-compared)
	$(BIN)/python -m pytest -m oracle tests/oracle/test_models_llama_cpp.py

# Kernels run on the CPU, statement by statement, and are compiled for devices this machine lacks.
test-gpu-interpreter: $(VENV)/.gpu ## run the GPU kernels in Triton's interpreter, compile them for four devices
	@echo "running the GPU kernels in Triton's interpreter and compiling them for four devices (about four minutes)"
	@$(MAKE) -j2 --output-sync --no-print-directory gpu-compiled-amd gpu-interpreted gpu-compiled-nvidia

# In the interpreter NumPy multiplies. Products of its OpenBLAS for some CPUs depend on the shape of
# a matrix; those for Nehalem do not, and run on all.
gpu-interpreted: $(VENV)/.gpu
	OPENBLAS_CORETYPE=Nehalem TRITON_INTERPRET=1 OMP_NUM_THREADS=1 PYTHONPATH=$(INTERPRETER) $(BIN)/python -m pytest tests/gpu

gpu-compiled-nvidia: $(VENV)/.gpu
	TRITON_CACHE_DIR=$(TRITON_CACHE) $(BIN)/python -m pytest tests/gpu/compile_kernels.py -k sm

gpu-compiled-amd: $(VENV)/.gpu
	TRITON_CACHE_DIR=$(TRITON_CACHE) $(BIN)/python -m pytest tests/gpu/compile_kernels.py -k gfx

test-gpu: build ## run the GPU tests on this machine's GPU (needs PyTorch)
	@$(BIN)/python -c 'import sys, torch, triton; sys.exit(not torch.cuda.is_available())' || \
	  { echo "PyTorch in $(VENV) finds no GPU, or is missing: $(BIN)/python -m pip install torch triton" >&2; exit 1; }
	$(BIN)/python -m pytest tests/gpu

# The extension again, under build/, with the address and undefined-behaviour sanitizers.
# Their runtime is loaded first, with the C++ runtime whose exceptions it intercepts; -S keeps the
# editable install from shadowing the sanitized one.
FUZZ_COUNT ?= 120000
SANITIZED := build/sanitized
SANITIZERS = $(shell g++ -print-file-name=libasan.so) $(shell g++ -print-file-name=libstdc++.so)
SANITIZED_PYTHON = LD_PRELOAD="$(SANITIZERS)" PYTHONMALLOC=malloc \
  PYTHONPATH=$(SANITIZED):tests:$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])') \
  ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16:$(1) $(BIN)/python -S

$(SANITIZED)/.built: $(VENV)/.built $(shell find src -name '*.py')
	@command -v g++ >/dev/null 2>&1 || { echo "The sanitizers need g++ and its libraries." >&2; exit 1; }
	@echo "compiling with sanitizers into $(SANITIZED) (about eight minutes the first time)"
	@CXX=g++ $(PIP) install --upgrade --target $(SANITIZED) --no-deps --no-build-isolation \
	  --config-settings=build-dir=build/sanitized-objects --config-settings=cmake.build-type=Debug \
	  --config-settings=cmake.define.INGOT_SANITIZE=ON --config-settings=install.strip=false .
	@touch $@

test-sanitized: $(SANITIZED)/.built ## run the tests of kernels and backends with sanitizers
	$(call SANITIZED_PYTHON,) -m pytest -p no:cacheprovider tests/kernels tests/ops tests/unit/backends \
	  --dist worksteal --tx '2*popen//python=$(BIN)/python -S' \
	  --ignore tests/unit/backends/test_expanded_latents.py \
	  --ignore tests/unit/backends/test_steady_state.py  # minutes, tests/ops has its kernels; counts allocations by other means

# The core for 64-bit ARM, compiled across and run in an emulator with Debian's Python for ARM.
ARM := build/arm
ARM_WHEELS := --only-binary :all: --implementation cp --platform manylinux2014_aarch64 \
  --platform manylinux_2_28_aarch64 --platform manylinux_2_31_aarch64
PYTHON_VERSION = $(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')

$(ARM)/.root: tests/arm/make_root.sh $(VENV)/.created
	@echo "unpacking Python for ARM into $(ARM)"
	@tests/arm/make_root.sh $(PYTHON_VERSION) $(ARM)
	@$(PIP) install --upgrade --target $(ARM)/packages --python-version $(PYTHON_VERSION) $(ARM_WHEELS) \
	  numpy typer rich jinja2 llguidance pytest hypothesis gguf regex
	@touch $@

# A wheel, as users get one, installed for the tests.
$(ARM)/.built: $(ARM)/.root $(VENV)/.wheels tests/arm/toolchain.cmake $(NATIVE) $(shell find src -name '*.py')
	@echo "compiling for ARM into $(ARM) (about ten minutes the first time)"
	@rm -rf $(ARM)/wheels $(ARM)/site
	@_PYTHON_HOST_PLATFORM=linux-aarch64 \
	  SETUPTOOLS_EXT_SUFFIX=.cpython-$(subst .,,$(PYTHON_VERSION))-aarch64-linux-gnu.so \
	  $(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(ARM)/wheels/built . \
	  --config-settings=build-dir=$(ARM)/objects \
	  --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/tests/arm/toolchain.cmake \
	  --config-settings=cmake.define.INGOT_ARM_ROOT=$(CURDIR)/$(ARM)/root \
	  --config-settings=cmake.define.Python_INCLUDE_DIR=$(CURDIR)/$(ARM)/root/usr/include/python$(PYTHON_VERSION)
	@PATH=$(BIN):$$PATH $(BIN)/auditwheel repair --wheel-dir $(ARM)/wheels $(ARM)/wheels/built/*.whl
	@$(PIP) --python $(ARM)/python install --no-deps --target $(ARM)/site $(ARM)/wheels/*.whl
	@touch $@

test-arm: $(VENV)/.built $(ARM)/.built ## compile for ARM, run the wheel, the kernels and a model on three emulated CPUs (Debian)
	@$(BIN)/ingot pull default >/dev/null
	$(BIN)/python tests/arm/run.py $(ARM)

# The core for other systems, with zig, which has the headers and libraries of all of them in itself.
CROSS := build/cross
CROSS_ENV := build/cross-env
CROSS_FLAGS ?=

$(CROSS_ENV)/.installed: tests/cross/requirements.txt
	@echo "installing zig into $(CROSS_ENV)"
	@$(PYTHON) -m venv $(CROSS_ENV)
	@$(CROSS_ENV)/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@touch $@

test-cross: $(VENV)/.built $(CROSS_ENV)/.installed ## compile and link for Linux, macOS and Windows, check imports (CROSS_FLAGS=--optimized)
	PYTHONPATH=tests $(BIN)/python -m cross.build $(CROSS_ENV) $(CROSS) $(CROSS_FLAGS)

# The wheel of this machine and its Python; those of other systems are built on them
# (.github/workflows/wheels.yml).
WHEELS := build/wheels

$(VENV)/.wheels: $(VENV)/.built
	@$(PIP) install --no-build-isolation --editable '.[wheels]'
	@touch $@

wheels: $(VENV)/.wheels ## build a wheel and the source distribution into dist, check, install and run the wheel
	@rm -rf $(WHEELS) dist
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(WHEELS) .
	PATH=$(BIN):$$PATH $(BIN)/auditwheel repair --wheel-dir dist $(WHEELS)/*.whl
	$(BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
	$(BIN)/python tests/wheels/try_wheel.py dist/*.whl
	$(BIN)/python tests/wheels/try_sdist.py dist/*.tar.gz

# The wheel for Python 3.12 and newer, with a newer Python than Debian 12 has: plain kernels, not
# optimized, because the stable ABI is a matter of the bindings alone.
NEWER := build/newer-python
NEWER_PYTHON = PYTHONPATH=$(CURDIR)/$(NEWER)/$(1) $(CURDIR)/$(NEWER)/python

$(NEWER)/.made: tests/wheels/make_newer_python.sh $(VENV)/.created
	@echo "unpacking Python 3.13 into $(NEWER)"
	@tests/wheels/make_newer_python.sh $(NEWER)
	@$(PIP) --python $(NEWER)/python install --upgrade --target $(NEWER)/tools \
	  scikit-build-core nanobind cmake ninja pip
	@touch $@

test-abi3: $(NEWER)/.made $(VENV)/.wheels ## build the wheel of the stable ABI, audit it, run it with Python 3.13 (Debian)
	@rm -rf $(NEWER)/wheels $(NEWER)/site
	PATH=$(CURDIR)/$(NEWER)/tools/bin:$$PATH $(call NEWER_PYTHON,tools) -m pip --quiet wheel --no-deps --no-build-isolation \
	  --wheel-dir $(NEWER)/wheels --config-settings=build-dir=$(NEWER)/objects \
	  --config-settings=cmake.define.INGOT_SCALAR_ONLY=ON --config-settings=cmake.define.INGOT_UNOPTIMIZED=ON .
	$(BIN)/abi3audit --strict --summary $(NEWER)/wheels/*-cp312-abi3-*.whl
	@$(PIP) --python $(NEWER)/python install --target $(NEWER)/site $(NEWER)/wheels/*.whl
	@$(BIN)/ingot pull default >/dev/null
	$(call NEWER_PYTHON,site) -m ingot run --temperature 0 -n 2 hi </dev/null

# All that .venv holds for the tests, linters, oracles, coverage, wheels and benchmarks, in the versions they passed with.
lock: $(VENV)/.lint $(VENV)/.oracle $(VENV)/.gpu $(VENV)/.coverage $(VENV)/.wheels $(VENV)/.bench ## write requirements.lock from what is installed
	@head -2 requirements.lock > build/lock
	@$(BIN)/python -m pip freeze --all --exclude-editable | sed 's/+.*//' | grep '==' \
	  | grep -vE '^(pip|setuptools|wheel)==' | sort -f >> build/lock
	@mv build/lock requirements.lock

SOAK_REQUESTS ?= 10000

soak: build ## run 10,000 mixed requests and check memory and KV cache (minutes)
	$(BIN)/python tests/soak.py --requests $(SOAK_REQUESTS)

CHAOS_SECONDS ?= 600

chaos: build ## kill, starve and attack a server under load and check what must still hold (CHAOS_SEED=N repeats)
	PYTHONPATH=tests $(BIN)/python -m chaos.run --seconds $(CHAOS_SECONDS) $(if $(CHAOS_SEED),--seed $(CHAOS_SEED))

fuzz: $(SANITIZED)/.built ## feed bad files to the parser, with sanitizers
	$(call SANITIZED_PYTHON,max_allocation_size_mb=64) -m fuzz.run --sanitized --count $(FUZZ_COUNT)

HOSTILE_MODELS ?= 24000

fuzz-models: build ## open 24,000 hostile model files of all architectures as a user would (minutes)
	PYTHONPATH=tests $(BIN)/python -m fuzz.run_models --count $(HOSTILE_MODELS)

$(VENV)/.coverage: $(VENV)/.built
	@$(PIP) install --no-build-isolation --editable '.[coverage]'
	@touch $@

coverage: $(VENV)/.coverage ## measure which Python code the tests run; fail if a package has less than before
	@mkdir -p build/coverage
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=json:build/coverage/report.json --cov-report=html:build/coverage/html
	$(BIN)/python tests/coverage_floors.py build/coverage/report.json

# The native core again, under build/, with counters. Processes that tests end by a signal leave no counts.
COUNTED := build/counted
COUNTED_OBJECTS := build/counted-objects
COUNTED_TESTS := tests/kernels tests/ops tests/models $(patsubst %,tests/unit/%,backends gguf quant quantize sampling \
  tokenizer test_json_scan.py)

$(COUNTED)/.built: $(VENV)/.built $(shell find src -name '*.py')
	@command -v g++ >/dev/null 2>&1 || { echo "gcov needs g++." >&2; exit 1; }
	@echo "compiling with counters into $(COUNTED) (minutes the first time)"
	@CXX=g++ $(PIP) install --upgrade --target $(COUNTED) --no-deps --no-build-isolation \
	  --config-settings=build-dir=$(COUNTED_OBJECTS) --config-settings=cmake.build-type=Debug \
	  --config-settings=cmake.define.INGOT_COVERAGE=ON --config-settings=install.strip=false .
	@touch $@

# -S keeps the editable install from shadowing the counted one.
coverage-native: $(COUNTED)/.built ## measure which lines of the native core the tests run; fail if a folder has less than before
	@mkdir -p build/coverage
	@find $(COUNTED_OBJECTS) -name '*.gcda' -delete
	PYTHONPATH=$(COUNTED):tests:$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])') \
	  $(BIN)/python -S -m pytest -p no:cacheprovider --dist worksteal --tx '2*popen//python=$(BIN)/python -S' $(COUNTED_TESTS)
	$(BIN)/python tests/native_coverage.py $(COUNTED_OBJECTS) build/coverage/native.json
	$(BIN)/python tests/coverage_floors.py build/coverage/native.json

MUTANTS ?= 60

mutants: build ## break the code in one place at a time, see whether a test fails (MUTANTS=0: all; hours)
	PYTHONPATH=tests $(BIN)/python -m mutants.run --sample $(MUTANTS)

# The documentation site, with its tools in an environment for themselves.
SITE_ENV := build/site-env
export NO_MKDOCS_2_WARNING := 1

$(SITE_ENV)/.installed: docs/site/requirements.txt
	@echo "installing what the documentation site is built with into $(SITE_ENV)"
	@$(PYTHON) -m venv $(SITE_ENV)
	@$(SITE_ENV)/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@touch $@

site: $(SITE_ENV)/.installed ## build the documentation site into build/site, check its links
	$(SITE_ENV)/bin/mkdocs build --strict --quiet
	$(PYTHON) docs/site/check_links.py build/site

site-serve: $(SITE_ENV)/.installed ## show the documentation site while you write
	$(SITE_ENV)/bin/mkdocs serve

bench: $(VENV)/.bench ## print the shorter tables of docs/performance.md (on an idle machine)
	$(BIN)/python benchmarks/bench_open.py
	$(BIN)/python benchmarks/bench_convert.py
	$(BIN)/python benchmarks/bench_quantize.py types
	$(BIN)/python benchmarks/bench_tokenizer.py
	$(BIN)/python benchmarks/bench_first_token.py
	$(BIN)/python benchmarks/bench_sampling.py
	$(BIN)/python benchmarks/bench_grammar.py

clean: ## remove everything that make made
	rm -rf $(VENV) build dist
