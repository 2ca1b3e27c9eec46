"""A whole search: prepare, take the folder, run what has no result yet, write what was found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import StateError
from entropy_mcmc.run import run_folder
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.model_and_data import fingerprint
from entropy_mcmc.run.seeds import derive
from entropy_mcmc.tuning.options import TuneConfig
from entropy_mcmc.tuning.proposals import require_optuna
from entropy_mcmc.tuning.result import Tuned
from entropy_mcmc.tuning.search import Job, Result, run_search
from entropy_mcmc.tuning.search_folder import TuneFolder
from entropy_mcmc.tuning.search_progress import Silent, make_progress
from entropy_mcmc.tuning.trial import clear
from entropy_mcmc.tuning.trial_config import Tuning, prepare
from entropy_mcmc.tuning.workers import (
    Order,
    preload,
    processes_at_once,
    run_orders,
    start_method,
)


def tune_run(
    config: RunConfig,
    options: TuneConfig,
    *,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    override: bool = False,
) -> Tuned:
    """Search, or go on with a search.

    Args:
        config: The run to tune; what it leaves open is chosen or follows the recipe.
        options: How to search.
        model: A network or a function that builds one, instead of `config.model`.
        data: Data, instead of `config.data`.
        loss: A mean loss, instead of `config.loss`.
        override: Go on although versions or processor differ from the first start.
    """
    require_optuna()
    tuning = prepare(config, options, model, data, loss)
    folder = TuneFolder(Path(options.folder(config)))
    names = (_name(model, config.model.name), _name(data, config.data.name))
    problem = fingerprint(tuning.part, *names)
    lock = folder.lock()
    try:
        folder.check_same(config, options, problem, _machine(config), override=override)
        tuned = Tuned(folder.path, *_searched(tuning, options, folder))
        tuned.write()
        return tuned
    finally:
        lock.release()


def _searched(tuning: Tuning, options: TuneConfig, folder: TuneFolder) -> tuple[RunConfig, Any]:
    total = sum(rung.trials * rung.epochs for rung in tuning.rungs)
    shown = tuning.config.output.progress
    progress = make_progress(total, tuning.rungs[-1].epochs, shown=shown)
    work = _Work(tuning, options, folder, progress)
    try:
        outcome = run_search(
            tuning.space, tuning.rungs, derive(tuning.config.seed, "tune"), work.evaluate
        )
    except KeyboardInterrupt:
        print(
            f"stopped; what was done is in {folder.path}: run the same command again to go on",
            file=sys.stderr,
        )
        raise
    finally:
        progress.close()
    best = outcome.best
    return tuning.complete_config(best.number, best.point), outcome


class _Work:
    """Evaluates jobs: from the folder where they are finished, by workers where not."""

    def __init__(
        self, tuning: Tuning, options: TuneConfig, folder: TuneFolder, progress: Silent
    ) -> None:
        self._tuning, self._folder, self._progress = tuning, folder, progress
        accelerator = tuning.config.compute.accelerator
        self._workers = processes_at_once(options.workers, accelerator)

    def evaluate(self, jobs: Sequence[Job]) -> list[Result]:
        missing = []
        for job in jobs:
            if self._folder.result(job) is None:
                missing.append(job)
            else:
                clear(self._folder.run_folder(job))  # a kill may have come before its removal
                self._done(job)
        if missing:
            preload(self._tuning.config.compute)
        run_orders(
            [Order(job, self._tuning.config_of(job)) for job in missing],
            self._tuning.given,
            self._folder,
            workers=self._workers,
            done=self._done,
            method=start_method(),
        )
        return [self._result(job) for job in jobs]

    def _done(self, job: Job) -> None:
        self._progress.show(job, self._result(job))

    def _result(self, job: Job) -> Result:
        result = self._folder.result(job)
        if result is None:
            raise StateError(
                f"the result of trial {job.trial} is not in {self._folder.path}; was it removed? "
                "run the same command again"
            )
        return result


def _machine(config: RunConfig) -> dict[str, Any]:
    """What may change a trial's last bits, or the trials that are proposed."""
    import optuna
    import scipy

    machine = run_folder.machine("cpu", config.sampler.fused)
    return {**machine, "threads": 1, "scipy": scipy.__version__, "optuna": optuna.__version__}


def _name(given: Any, configured: str) -> str | None:
    return None if given is not None else configured
