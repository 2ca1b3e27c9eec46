# Everything runs in its own virtual environment in .venv; each target sets it up first.
VENV   ?= .venv
PYTHON ?= python3
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
# The demo needs the package alone: no test, docs or example tools.
DEMO_STAMP := $(VENV)/.installed-demo
# What to install: constraints-oldest.txt has the lower bounds, /dev/null takes the newest.
CONSTRAINTS ?= constraints.txt
EXTRA ?= dev
# Two processes of one thread: nearly twice as fast on two cores as one process of two threads.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile

.PHONY: demo test soak lint types check bench docs clean

demo: $(DEMO_STAMP)
	OMP_NUM_THREADS=1 $(PY) examples/demo.py  # tiny networks: two threads would wait for each other

test: $(STAMP)
	$(PYTEST)

soak: $(STAMP)
	$(PYTEST) -m soak

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(STAMP)
	$(VENV)/bin/mypy

check: lint types test

docs: $(STAMP)
	$(VENV)/bin/mkdocs build --strict

bench: $(STAMP)
	$(VENV)/bin/pip install -q -c $(CONSTRAINTS) -e '.[bench]'
	$(PY) benchmarks/run.py

$(STAMP): pyproject.toml $(CONSTRAINTS) reproduction/pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[$(EXTRA)]' -e reproduction
	touch $(STAMP)

$(DEMO_STAMP): pyproject.toml $(CONSTRAINTS)
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e .
	touch $(DEMO_STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
