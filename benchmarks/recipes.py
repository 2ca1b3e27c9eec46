"""The tournament of docs/comparison.md, resumable: the same command goes on where it stopped.

    python benchmarks/recipes.py plan                            # runs and minutes
    python benchmarks/recipes.py run --half development          # league "own", two workers
    python benchmarks/recipes.py run --league trials --half development
    python benchmarks/recipes.py ingredients --tasks digits      # EMCMC with one thing taken away
    python benchmarks/recipes.py sweep --tasks digits            # one setting changed at a time
    python benchmarks/recipes.py rivals --tasks digits digits-bn fashion-mlp   # theirs, on a grid
    python benchmarks/recipes.py budget --tasks digits           # NLL against passes
    python benchmarks/recipes.py auto --tasks digits             # chains by what the first shows
    python benchmarks/recipes.py render                          # results → docs/tournament.md

Outputs of networks go to --store (default $EMCMC_RUNS or ~/.cache/emcmc-tournament), scores to
results/tournament. Data are read from $EMCMC_DATA.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "reproduction"))

from tournament.command import main

if __name__ == "__main__":
    main(__doc__)
