# Every target makes the virtual environment the first time and installs what it needs.
# make PYTHON=python3.12 ...   another interpreter (3.10 or newer)
# make DALI=dali-cuda12 ...    DALI for CUDA 12 (default: what the driver says, else CUDA 13)

PYTHON ?= python3
comma := ,
VENV := .venv
BIN := $(VENV)/bin
CUDA_MAJOR := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p')
DALI ?= $(if $(filter 12,$(CUDA_MAJOR)),dali-cuda12,dali-cuda13)
CUPY := $(if $(CUDA_MAJOR),$(comma)$(subst dali,cupy,$(DALI)))
SOURCES := $(shell find csrc tests/cuda_on_cpu -type f)
CODE := $(filter csrc/%,$(SOURCES)) setup.py pyproject.toml

.PHONY: demo test docs lint format sanitize clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/prime-dali demo --out out/demo

test: $(VENV)/installed
	$(BIN)/python -m pytest

# Warnings are errors: a broken link or reference fails.
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(SOURCES)

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(SOURCES)

# Needs a GPU and compute-sanitizer of the CUDA toolkit.
sanitize: $(VENV)/installed
	for tool in memcheck racecheck initcheck synccheck; do \
		compute-sanitizer --tool $$tool --error-exitcode 1 $(BIN)/python tests/sanitize.py || exit 1; \
	done

# Build isolation would download a second torch; the one in the environment serves to build and to run.
$(VENV)/installed: $(CODE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "setuptools>=77" "ninja>=1.11" "pybind11>=2.12" "torch>=2.10"
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[dev,$(DALI)$(CUPY)]"
	touch $@

clean:
	rm -rf $(VENV) build dist out site *.egg-info prime_dali/*.so
