"""What `emcmc tune` does, once its arguments are parsed."""

from __future__ import annotations

from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.tuning.options import TuneConfig
from entropy_mcmc.tuning.result import CHOSEN, PICTURE, TABLE
from entropy_mcmc.tuning.search_runner import tune_run


def tune_command(config: RunConfig, options: TuneConfig, override: bool) -> None:
    """Search, print the table and how to sample with what was found."""
    tuned = tune_run(config, options, override=override)
    print(tuned)
    print(f"{tuned.folder}: {CHOSEN}, {TABLE}, {PICTURE}")
    print(f"sample with it: {tuned.command}")
