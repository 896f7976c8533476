# Every target sets up what it needs in .venv and does so again only when pyproject.toml or the constraints change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SETUP := pyproject.toml constraints.txt
# A worker for each core, each with one thread for linear algebra: two layers of threads would fight for the cores.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# What pytest compiles of the tests is kept, whatever is asked of Python elsewhere: it takes each worker seconds.
unexport PYTHONDONTWRITEBYTECODE

# As a CPU without AVX computes: other loops in numpy, OpenBLAS, numba and torch, sums in another order.
OLD_CPU := OPENBLAS_CORETYPE=Prescott NUMBA_CPU_NAME=generic ATEN_CPU_CAPABILITY=default \
	NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"

# Types are checked beside the tests: pyright takes one core for a minute.
TYPES := $(BIN)/pyright & types=$$!;
ENDED := ; tests=$$?; wait $$types && exit $$tests

.PHONY: demo test test-all test-old-cpu check style proofs bench docs shots clean
.DEFAULT_GOAL := test

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "mezzotint needs Python >= 3.11; set PYTHON=python3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.created $(SETUP)
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.core $(SETUP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev,report,polars,torch,export,flower,ray,explore,docs]'
	$(BIN)/pyright --version
	touch $@

demo: $(VENV)/.core
	$(BIN)/mezzotint demo

test: style
	$(TYPES) $(PYTEST) -m "not slow"$(ENDED)

test-all: style
	$(TYPES) EXAMPLES=3 $(PYTEST)$(ENDED)

test-old-cpu: style
	$(TYPES) $(OLD_CPU) $(PYTEST) -m "not slow"$(ENDED)

check: style
	$(BIN)/python tools/density.py --check
	$(BIN)/pyright

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The proved checker, verified/build/mezzotint-check: needs Coq and OCaml, and no Python.
proofs:
	bash verified/build.sh

bench: $(VENV)/.dev
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

shots: docs
	$(BIN)/python tools/screenshots.py site build/shots

clean:
	rm -rf $(VENV) build dist site demo verified/build
