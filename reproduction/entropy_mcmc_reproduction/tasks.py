"""Tasks of jobs that sample a network with the run engine and measure what came out."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.diagnose import diagnose_run
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.model_and_data import Problem
from entropy_mcmc.run.runner import run
from entropy_mcmc_reproduction import measure
from entropy_mcmc_reproduction.jobs import Place, diverged, result_of
from entropy_mcmc_reproduction.methods import run_config
from entropy_mcmc_reproduction.pictures import TRUST


def sample(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Run, or go on with, one run; then measure it.

    Settings: `name`, `config` (of the run), `start` (name of the job whose last sample is the
    start), `measure` (see `measured`), `discard` (whether the weights go when the numbers are
    known; a start for others must stay).
    """
    folder = place.folder(settings["name"])
    config = replace(run_config(settings["config"]), run_dir=str(folder))
    options = dict(config.model.options)
    if settings.get("start"):
        options["start"] = str(_start(settings["start"], place))
    config = with_parts(
        config,
        model={"options": options},
        data={"options": {**config.data.options, "folder": place.data}},
        output={"progress": False, "baseline": "none"},
    )
    run(config)
    done = load_run(folder, trust=TRUST)
    if settings["measure"]:
        diagnose_run(done)
    result = measured(done.posterior, done.problem, settings["measure"], folder, place)
    events = [e for e in Journal(folder).events() if e["kind"] == "train"]
    result["curve"] = [[e["chain"], e["gradients"], round(e["loss"], 5)] for e in events]
    if settings.get("discard"):
        shutil.rmtree(folder)
    return result


def _start(name: str, place: Place) -> Path:
    """The folder of a finished job that did not diverge."""
    if diverged(result_of(place, name)):
        raise NonFiniteError(f"its start, {name}, diverged")
    return place.folder(name)


def measured(
    posterior: Posterior, problem: Problem, wanted: dict[str, Any], folder: Path, place: Place
) -> dict[str, Any]:
    """Measurements that `wanted` names: `ood`, `corruptions`, `flatness`, `borrowed`.

    Scores on the test set always, on the training set unless `train` is False.
    """
    inputs = problem.train.normalise(problem.test.inputs)
    each = measure.predictions(posterior, inputs)
    result: dict[str, Any] = {"test": measure.of_test(posterior, each, problem.test.targets)}
    if wanted.get("train", True):
        seen = problem.train.take(len(problem.test))
        fitted = measure.predictions(posterior, seen.normalise(seen.inputs))
        result["train"] = measure.of_test(posterior, fitted, seen.targets)
    if wanted.get("ood"):
        result["ood"] = measure.of_other_data(posterior, problem, each, wanted["ood"], place.data)
    if wanted.get("corruptions"):
        result["corruptions"] = measure.of_corruptions(posterior, problem, **wanted["corruptions"])
    if wanted.get("flatness"):
        result["flatness"] = measure.of_flatness(posterior, problem, wanted["flatness"])
    if wanted.get("borrowed"):
        result["borrowed"] = measure.of_borrowed_statistics(posterior, inputs, problem.test.targets)
    result["diagnostics"] = measure.of_diagnosis(folder)
    return result
