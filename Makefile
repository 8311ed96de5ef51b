# torch-sinter: `make setup`, `make demo`, `make test`. `make help` lists the rest.
#
# Nothing is needed before any of these but Linux with python3 (and its venv module), make and a C++20 compiler.
# Every target brings what it needs into .venv and build/, and does nothing where all is up to date.

PYTHON ?= python3
JOBS ?= $(shell nproc)
# An index of PyTorch's CPU wheels, where pip's own configuration does not lead to one (else pip takes the CUDA build).
TORCH_INDEX_URL ?=

VENV := .venv
STAMPS := $(VENV)/.stamps
BIN := $(CURDIR)/$(VENV)/bin
PY := $(BIN)/python
# -qq: pip's warnings are about its indexes, not about us; errors still show.
PIP_INSTALL := $(PY) -m pip --disable-pip-version-check install -qq
CMAKE := $(BIN)/cmake
CTEST := $(BIN)/ctest
PYTEST := $(PY) -m pytest
# PYTEST_ARGS="-k name" may leave one of several processes without a test.
NONE_IS_FINE = $(if $(PYTEST_ARGS),|| test $$? -eq 5)
export PATH := $(BIN):$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
# Lets ccache give a second clone what the first one compiled.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup build demo test test-cpp test-python test-database test-reference test-native test-rest check conformance conformance-others conformance-database bench wheel asan tsan lint format clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- setup -------------------------------------------------------------------------------------------------

$(STAMPS)/venv: tools/check_host.sh
	@sh tools/check_host.sh $(PYTHON)
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build: requirements/build.txt $(STAMPS)/venv
	@echo "installing the build tools and PyTorch into $(VENV)"
	$(if $(TORCH_INDEX_URL),@$(PIP_INSTALL) --index-url $(TORCH_INDEX_URL) $(shell grep '^torch==' requirements/build.txt))
	@$(PIP_INSTALL) -r $<
	@touch $@

$(STAMPS)/test: requirements/test.txt $(STAMPS)/build
	@echo "installing the test tools"
	@$(PIP_INSTALL) -r $< -c requirements/build.txt
	@touch $@

$(STAMPS)/lint: requirements/lint.txt $(STAMPS)/venv
	@$(PIP_INSTALL) -r $<
	@touch $@

# The package's metadata, command and entry points, with the Python sources used where they lie. CMake is left out:
# `build` owns the library, and the package finds it through a link.
$(STAMPS)/package: pyproject.toml $(STAMPS)/test
	@$(PIP_INSTALL) --no-build-isolation --no-deps --config-settings=wheel.cmake=false \
	  --config-settings=editable.mode=inplace --config-settings=build-dir= -e .
	@touch $@

build/%/build.ninja: CMakePresets.json $(STAMPS)/test
	@mkdir -p build
	@$(CMAKE) --preset $* $(CMAKE_FLAGS) >build/$*.log 2>&1 || { cat build/$*.log; exit 1; }
	@touch $@

setup: build ## .venv with the package and all test tools, and the C++ library
build: $(STAMPS)/package build/dev/build.ninja
	@ln -sfn ../../build/dev/lib python/torch_sinter/lib
	@ln -sfn ../../include python/torch_sinter/include
	@$(CMAKE) --build --preset dev

# ---- use and test ------------------------------------------------------------------------------------------

demo: setup ## train two models on eager CPU and on sinter, and compare
	@$(PY) examples/demo.py $(DEMO)

test: check test-cpp test-python ## everything that a change must pass

check: $(STAMPS)/venv
	@$(PY) tools/check_layers.py

test-cpp: setup
	@$(CTEST) --preset dev

# The engine is chosen once for a process. The reference engine shows that recording is right, to the bit; the native
# one, the default, is held to the last bits where kernels of its own run, so everything else runs on it.
# Two processes side by side: waiting threads do not spin, or they would take the other's core; PyTorch's databases are
# small calls, which one thread serves.
test-python: setup
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-database test-reference
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-native test-rest

FAST := -m "not slow and not conformance" $(PYTEST_ARGS) $(NONE_IS_FINE)

test-database:
	@SINTER_ENGINE=reference OMP_NUM_THREADS=1 $(PYTEST) tests/conformance $(FAST)

test-reference:
	@SINTER_ENGINE=reference OMP_WAIT_POLICY=passive $(PYTEST) tests/device tests/laziness tests/semantics tests/models \
	  tests/fuzz $(FAST)

test-native:
	@OMP_WAIT_POLICY=passive $(PYTEST) tests/native tests/fuzz tests/device tests/laziness tests/models $(FAST)

test-rest:
	@OMP_WAIT_POLICY=passive $(PYTEST) tests $(foreach part,conformance native fuzz device laziness models,\
	  --ignore=tests/$(part)) $(FAST)

conformance: setup ## PyTorch's databases in full, other libraries' tests, the wheel in a clean environment
	@$(MAKE) --no-print-directory -j2 --output-sync=target conformance-database conformance-others

# Other libraries' own tests, the wheel in a clean environment.
conformance-others:
	@OMP_WAIT_POLICY=passive $(PYTEST) tests/models tests/packaging tests/regressions tests/integration -m "slow or conformance" $(PYTEST_ARGS)

# PyTorch's databases op by op and in further types, fuzz over many more seeds: a quarter of an hour and more.
conformance-database:
	@OMP_NUM_THREADS=1 $(PYTEST) tests/conformance tests/fuzz tests/device tests/laziness tests/semantics -m "slow or conformance" $(PYTEST_ARGS)

bench: setup ## the project's benchmarks
	@$(PY) bench/run.py $(BENCH)

# ---- the wheel ---------------------------------------------------------------------------------------------

wheel: $(STAMPS)/build ## dist/*.whl
	@rm -rf dist
	@$(PY) -m pip --disable-pip-version-check wheel -q --no-build-isolation --no-deps -w dist .
	@ls -l dist

# ---- checks ------------------------------------------------------------------------------------------------

asan tsan: %: build/%/build.ninja ## the C++ tests under sanitizers
	@$(CMAKE) --build --preset $@
	@$(CTEST) --preset $@

lint: $(STAMPS)/lint check ## ruff and clang-format, without changing a file
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@git ls-files '*.h' '*.cpp' | xargs -r $(BIN)/clang-format --dry-run -Werror

format: $(STAMPS)/lint ## let ruff and clang-format rewrite the sources
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@git ls-files '*.h' '*.cpp' | xargs -r $(BIN)/clang-format -i

clean: ## remove what was built, keep .venv
	rm -rf build dist python/torch_sinter/lib python/torch_sinter/include

distclean: clean ## remove .venv too
	rm -rf $(VENV)
