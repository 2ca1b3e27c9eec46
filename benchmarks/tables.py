r"""Tables: the estimators against others on public tables.

    pip install --no-deps --target FOLDER -r benchmarks/tabular/data-packages.txt lightgbm
    export PYTHONPATH=FOLDER EMCMC_DATA=DATA OMP_NUM_THREADS=1
    python benchmarks/tables.py development --splits 2 --most-rows 1500
    python benchmarks/tables.py confirmation --splits 10 --methods entropy-mcmc logistic \
        bayesian-ridge mlp forest hist-boosting lightgbm  # when nothing is tuned any more
    python benchmarks/tables_known.py                     # made tables, and what a fit costs
    python benchmarks/tables_page.py                      # → docs/tabular.md, README.md
    python benchmarks/tables_page.py --results CLONE/results/tables   # of a run in another clone

Each table has one JSON file; a fit that is in it is not made again, so a stopped run goes on, and
several processes may share the work. Random splits, a quarter for testing, stratified by class.

Plan for the confirmation half, CPU-seconds of a split on one thread of an idle core:

| tables | number | untuned methods | 3 tuned rivals | bde, both settings |
|---|---|---|---|---|
| classification, up to 1,000 rows | 18 | 35 | 300 | 600 |
| regression, up to 1,000 rows | 9 | 35 | 300 | 500 |
| both, 1,000 to 5,000 rows | 19 | 200 | 1,500 | not run |
| both, more rows | 8 | 250 | 5,000 | not run |

On a busy core they are two to three times as many.
"""

from __future__ import annotations

from tabular.command import main

if __name__ == "__main__":
    main()
