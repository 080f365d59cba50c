# Each target creates .venv and installs and compiles what it needs. Stamp files in .venv keep later
# calls from doing it again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
NATIVE := $(shell find native -type f -name '*.cpp' -o -type f -name '*.h') CMakeLists.txt
CXX_FILES := $(filter %.cpp %.h,$(NATIVE))

# The peer in the oracle tests: built without this machine's own instructions, because
# gcc 12 miscompiles its AMX set-up, and without what the tests do not use.
LLAMA_CPP := llama-cpp-python==0.3.36
LLAMA_CPP_FLAGS := -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF \
  -DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/tests/oracle/llama_cpp.cmake

.DEFAULT_GOAL := help
.PHONY: help build run test lint format test-oracle test-compared test-clients test-peer test-sanitized test-gpu \
  test-gpu-interpreter gpu-interpreted gpu-compiled-nvidia gpu-compiled-amd fuzz fuzz-models soak chaos bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null 2>&1 && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Ingot needs Python 3.11 or newer as '$(PYTHON)': install it, or call make PYTHON=/path/to/python3.11." >&2; exit 1; }
	@command -v "$${CXX:-c++}" >/dev/null 2>&1 || \
	  { echo "Ingot needs a C++20 compiler as '$${CXX:-c++}': install g++ 11 or newer or clang 14 or newer (Debian: apt-get install g++), or set CXX." >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install "scikit-build-core>=0.11" "nanobind>=2.4" cmake ninja
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

# Triton 3.6's interpreter does not run with NumPy 2.4 or newer.
INTERPRETER := build/interpreter
TRITON_CACHE := build/triton

$(VENV)/.gpu: $(VENV)/.built
	@echo "installing PyTorch and Triton for the tests of the GPU backend"
	@$(PIP) install --no-build-isolation --editable '.[gpu-test]'
	@$(PIP) install --upgrade --target $(INTERPRETER) 'numpy<2.4'
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
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(VENV)/.lint ## format Python and C++
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

test-oracle: test-sanitized test-compared ## the slow tests: sanitizers, and comparisons with other implementations

test-compared: $(VENV)/.oracle ## compare with gguf, tokenizers, transformers, llama.cpp
	$(BIN)/python -m pytest -n 2 --dist loadfile -m oracle

# Clients of other projects, each with what it needs, apart from our own environment.
CLIENTS := build/clients
NODE_CLIENTS := build/clients-node

$(CLIENTS)/.installed: tests/clients/requirements.txt
	@echo "installing the clients of other projects into $(CLIENTS) (minutes the first time)"
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@touch $@

$(NODE_CLIENTS)/.installed: tests/clients/node/package.json
	@mkdir -p $(NODE_CLIENTS) && cp $< $(NODE_CLIENTS)
	@if command -v npm >/dev/null 2>&1; then \
	  npm install --prefix $(NODE_CLIENTS) --no-audit --no-fund --silent; \
	  else echo "npm is not here: the clients in JavaScript are skipped" >&2; fi
	@touch $@

test-clients: $(VENV)/.built $(CLIENTS)/.installed $(NODE_CLIENTS)/.installed ## run clients of other projects against the server
	$(BIN)/python -m pytest -m oracle tests/clients

test-peer: $(VENV)/.peer ## compare tiny models of every architecture with llama.cpp (part of test-compared)
	$(BIN)/python -m pytest -m oracle tests/oracle/test_models_llama_cpp.py

# Kernels run on the CPU, statement by statement, and are compiled for devices this machine lacks.
test-gpu-interpreter: $(VENV)/.gpu ## run the GPU kernels in Triton's interpreter, compile them for four devices
	@echo "running the GPU kernels in Triton's interpreter and compiling them for four devices (about four minutes)"
	@$(MAKE) -j2 --output-sync --no-print-directory gpu-compiled-amd gpu-interpreted gpu-compiled-nvidia

gpu-interpreted: $(VENV)/.gpu
	TRITON_INTERPRET=1 OMP_NUM_THREADS=1 PYTHONPATH=$(INTERPRETER) $(BIN)/python -m pytest tests/gpu

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
	@echo "compiling with sanitizers into $(SANITIZED) (about three minutes the first time)"
	@CXX=g++ $(PIP) install --upgrade --target $(SANITIZED) --no-deps --no-build-isolation \
	  --config-settings=build-dir=build/sanitized-objects --config-settings=cmake.build-type=Debug \
	  --config-settings=cmake.define.INGOT_SANITIZE=ON --config-settings=install.strip=false .
	@touch $@

test-sanitized: $(SANITIZED)/.built ## run the tests of kernels and backends with sanitizers
	$(call SANITIZED_PYTHON,) -m pytest -p no:cacheprovider tests/kernels tests/ops tests/unit/backends \
	  --dist worksteal --tx '2*popen//python=$(BIN)/python -S' \
	  --ignore tests/unit/backends/test_steady_state.py  # which counts allocations by other means

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

bench: $(VENV)/.bench ## print the shorter tables of docs/performance.md (on an idle machine)
	$(BIN)/python benchmarks/bench_open.py
	$(BIN)/python benchmarks/bench_encode.py
	$(BIN)/python benchmarks/bench_tokenizer.py
	$(BIN)/python benchmarks/bench_first_token.py
	$(BIN)/python benchmarks/bench_sampling.py
	$(BIN)/python benchmarks/bench_grammar.py

clean: ## remove everything that make made
	rm -rf $(VENV) build
