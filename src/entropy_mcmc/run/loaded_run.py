"""A run folder, opened to read: its record, its problem and its posterior."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run import run_folder
from entropy_mcmc.run.config_file import NAME as CONFIG
from entropy_mcmc.run.devices import DOUBLE, check_device
from entropy_mcmc.run.model_and_data import build_problem
from entropy_mcmc.run.runner import Run, shared_data
from entropy_mcmc.run.trust import NOTHING, Trust, accept

BASELINE = "baseline"


def load_run(
    folder: str | Path,
    device: str = "cpu",
    trust: Trust = NOTHING,
    like: Run | None = None,
) -> Run:
    """Open a finished or running run, to read.

    Args:
        folder: The run folder. It is data: nothing that it names is imported unless trusted.
        device: Where the model shall be.
        trust: Functions (`module:function`) that may be imported and called.
        like: A run whose data are taken, if they are the same, instead of being read again.
    """
    folder = Path(folder)
    place = check_device(device)
    record = run_folder.read_existing(folder)
    for what, name in (("model", record.config.model.name), ("data", record.config.data.name)):
        made_with = record.problem.get(what)
        if made_with != name:
            raise ConfigError(
                f"{folder} was made with {what} objects of a Python program "
                f"({made_with}), which this command cannot rebuild; use the posterior "
                "in that program, or name them as module:function"
            )
    accept(record.config, trust, folder / CONFIG)
    problem = build_problem(record.config, data=shared_data(like, record.config))
    model = problem.model.double() if record.config.compute.precision == DOUBLE else problem.model
    posterior = Posterior.open(folder, model.to(place), output=problem.output)
    return Run(folder, record, replace(problem, model=model), posterior, trust=trust)


def load_baseline(run: Run) -> Run | None:
    """The baseline in a run folder, to read, with the run's data; None where there is none."""
    folder = run.folder / BASELINE
    if not (folder / CONFIG).exists():
        return None
    device = str(next(run.problem.model.parameters()).device)
    return load_run(folder, device, run.trust, like=run)
