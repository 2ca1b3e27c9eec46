# Everything runs in its own virtual environment in .venv; each target sets it up first.
VENV   ?= .venv
PYTHON ?= python3
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
# Two processes of one thread: nearly twice as fast on two cores as one process of two threads.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile

.PHONY: demo test soak lint types check bench docs clean

demo: $(STAMP)
	$(PY) examples/demo.py

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
	$(VENV)/bin/pip install -q -c constraints.txt -e '.[bench]'
	$(PY) benchmarks/run.py

$(STAMP): pyproject.toml constraints.txt reproduction/pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]' -e reproduction
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
