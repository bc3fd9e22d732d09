# Every target makes the virtual environment the first time and installs what it needs.
# make PYTHON=python3.12 ...   another interpreter (3.10 or newer)
# make DALI=dali-cuda12 ...    DALI for CUDA 12 (default: what the driver says, else CUDA 13)
# make WORKERS=4 test           how many processes test at a time (default: two, and one where there is a GPU)
# make SECONDS=600 fuzz          how long each fuzz test runs
# make TESTS='tests/test_*.py' coverage   by all tests (default: by those of the library and quick ones of the rest)
# make BATCH=512 profile         images in the profiled batch
# make PYTHONS="3.12 3.13" VARIANTS="cpu cu13" wheels   which wheels; PYTHONS may be paths of interpreters
# make DALI_VERSIONS="2.4.0" wheels   for which versions of DALI wheels bring the operator (none: DALI_VERSIONS=)
# make PYTHON=python3.12 TORCH="2.10.0 2.14.1 none" try-wheel   with which versions of torch, or environments that have one
# make TRY_DALI=nvidia-dali-cuda130==2.4.0 try-wheel   with which DALI

PYTHON ?= python3
comma := ,
VENV := .venv
BIN := $(VENV)/bin
CUDA_MAJOR := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p')
DALI ?= $(if $(filter 12,$(CUDA_MAJOR)),dali-cuda12,dali-cuda13)
CUPY := $(if $(CUDA_MAJOR),$(comma)$(subst dali,cupy,$(DALI)))
SOURCES := $(shell find csrc tests/cuda_on_cpu tests/aarch64 -type f)
CODE := $(filter csrc/%,$(SOURCES)) setup.py pyproject.toml
PYTHONS ?= 3.10 3.11 3.12 3.13 3.14
VARIANTS ?= cpu cu12 cu13
DALI_VERSIONS ?= 2.0.0 2.1.0 2.1.1 2.2.0 2.3.0 2.4.0
TORCH ?= none 2.10.0
TRY_DALI ?= none
SANITIZED := build/sanitized/lib
INSTRUMENTED := build/coverage/lib
SECONDS ?= 60
BATCH ?= 256
TESTS ?= $(addprefix tests/test_,channels.py waves.py scores.py arrays.py primitives.py torch.py pixels.py cifar.py \
	bad_input.py core_checks.py draws.py random.py states.py sampling.py train_settings.py)
NOT_COVERED := one_primitive each_slot every_order whole_images largest_and_smallest dali_on_the_cpu the_dali_operator
# On a GPU tests measure memory and times, and would see each other's.
WORKERS ?= $(if $(CUDA_MAJOR),0,2)
# Tests start many processes: what the first one has compiled to bytecode the others are to find. Importing PyTorch and
# what trains takes three times as long without.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: demo test docs lint format coverage profile sanitize fuzz aarch64 wheels try-wheel clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/prime-dali demo --out out/demo

test: $(VENV)/installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Warnings are errors: a broken link or reference fails (with --quiet it would not: MkDocs counts what it prints).
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
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

# The lines that no test runs, of Python and of the C++ core, whose instrumented libraries are in build/ with a copy of the
# package, for one instruction set: another has the same lines. No workers of pytest-xdist, which end without writing what
# gcc counted, but a process for four files: the first two have the CUDA sources compiled for the CPU, once. Tests of
# torch.compile are left out: they take long under a tracer, which does not see compiled code. So are those that compare
# most pixels with the reference: the others run the same lines of the core. So are those of the DALI operator, which is
# not instrumented and would be compiled anew. Warnings of the compiler are errors here.
coverage: $(INSTRUMENTED)/built
	find build/coverage -name '*.gcda' -delete
	$(BIN)/coverage erase
	printf '%s\n' $(TESTS) | PYTHONPATH=$(INSTRUMENTED) xargs -n 4 -P $(if $(filter 0,$(WORKERS)),1,$(WORKERS)) \
		$(BIN)/coverage run --parallel-mode $(BIN)/pytest -q -k "not compil and not export $(foreach name,$(NOT_COVERED),and not $(name))"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(BIN)/gcovr --txt --merge-lines --filter csrc/ build/coverage

$(INSTRUMENTED)/built: $(VENV)/installed $(shell find prime_dali -name '*.py')
	CXX="$(CXX) --coverage -fprofile-update=atomic -Werror" PRIME_DALI_CUDA=0 PRIME_DALI_MARCH=native $(BIN)/python \
		setup.py --quiet build --build-base build/coverage --build-lib $(INSTRUMENTED)
	touch $@

# Needs a GPU: the kernels of one augmented batch, by time.
profile: $(VENV)/installed
	@test -n "$(CUDA_MAJOR)" || { echo "make profile: expected an NVIDIA GPU, but nvidia-smi finds none here." \
		"On the CPU: $(BIN)/python benchmarks/throughput.py --device cpu --peers none --kernels"; exit 1; }
	$(BIN)/python benchmarks/throughput.py --device cuda --batch $(BATCH) --peers none --kernels

# Needs a GPU and compute-sanitizer of the CUDA toolkit.
sanitize: $(VENV)/installed
	for tool in memcheck racecheck initcheck synccheck; do \
		compute-sanitizer --tool $$tool --error-exitcode 1 $(BIN)/python tests/sanitize.py || exit 1; \
	done

# The tests that draw calls and kill runs, for longer: first with the CPU kernels under the address and undefined-behavior
# sanitizers, then as they are. Sanitized libraries are no part of the package: they lie, with a copy of it, in build/.
fuzz: $(SANITIZED)/built
	PYTHONPATH=$(SANITIZED) PRIME_DALI_FUZZ_SECONDS=$(SECONDS) \
	LD_PRELOAD="$(shell c++ -print-file-name=libasan.so) $(shell c++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		$(BIN)/pytest --timeout 0 -p no:faulthandler tests/test_fuzz.py
	PRIME_DALI_FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest --timeout 0 \
		tests/test_fuzz.py tests/test_agreement.py $(wildcard tests/test_kill_and_resume.py)

$(SANITIZED)/built: $(VENV)/installed $(shell find prime_dali -name '*.py')
	PRIME_DALI_SANITIZE=1 PRIME_DALI_CUDA=0 $(BIN)/python setup.py --quiet build \
		--build-base build/sanitized --build-lib $(SANITIZED)
	touch $@

# The CPU code for ARM servers, under emulation: the same plans and images as on this machine.
aarch64: $(VENV)/installed
	@command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64-static >/dev/null || { echo "make aarch64:" \
		"expected aarch64-linux-gnu-g++ and qemu-aarch64-static on PATH (Debian: apt-get install" \
		"g++-aarch64-linux-gnu qemu-user-static)"; exit 1; }
	$(BIN)/python -m pytest tests/test_build.py -k aarch64

# Every wheel of a release, and the source distribution. Fails where an interpreter or a CUDA toolkit is missing.
wheels:
	$(PYTHON) tools/build_wheels.py --pythons $(PYTHONS) --variants $(VARIANTS) --dali $(DALI_VERSIONS)
	ls dist

try-wheel:
	$(PYTHON) tools/try_wheel.py dist/*-cp$(shell $(PYTHON) -c "import sys; print('{}{}'.format(*sys.version_info))")-*.whl \
		--torch $(TORCH) --dali $(TRY_DALI)

# Build isolation would download a second torch; the one in the environment serves to build and to run.
$(VENV)/installed: $(CODE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "setuptools>=77" "ninja>=1.11" "pybind11>=2.12" "torch>=2.10"
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[dev,$(DALI)$(CUPY)]"
	touch $@

clean:
	rm -rf $(VENV) build dist out site *.egg-info prime_dali/*.so
