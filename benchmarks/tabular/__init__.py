"""The benchmark of the estimators on public tables: `benchmarks/tables.py` is its command."""
