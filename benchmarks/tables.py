"""Tables: the estimators against others on public tables, each with its defaults.

    pip install --no-deps --target FOLDER -r benchmarks/tabular/data-packages.txt lightgbm
    export PYTHONPATH=FOLDER EMCMC_DATA=DATA OMP_NUM_THREADS=1
    python benchmarks/tables.py development --splits 2 --most-rows 1500
    python benchmarks/tables.py confirmation --splits 10  # once, when nothing is tuned any more
    python benchmarks/tables_page.py                      # results/tables → docs/tabular.md

Each table has one JSON file; a fit that is in it is not made again, so a stopped run goes on.
Forecast for ten splits of the confirmation half (55 tables), one thread of an idle core: 90
minutes, from 3.6 CPU-seconds a split for tables up to 1000 rows; larger ones are guessed.
Random splits, a quarter for testing, stratified by class.
"""

from __future__ import annotations

from tabular.command import main

if __name__ == "__main__":
    main()
