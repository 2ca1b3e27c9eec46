"""The first league: every method by its own recipe, without a trial.

EMCMC's settings are those of `entropy_mcmc.recipes`. The rivals have the same prior, the same
momentum and, where they have noise, the same temperature and noisy part; SGD's lr is half of
EMCMC's.
"""

from __future__ import annotations

from entropy_mcmc import recipes
from tournament.methods import Method
from tournament.optimizers import unit
from tournament.tasks import Task

SGLD_LR = 4.0  # times SGD's with momentum 0.9: without momentum it moves at a tenth of the speed


def recipe(task: Task, chains: int = 1) -> recipes.Recipe:
    """What the library's recipe says about a task."""
    make = recipes.from_trained if task.start else recipes.from_scratch
    return make(task.network(), task.train, task.batch, task.passes, chains=chains, unit=unit(task))


def knobs(method: Method, task: Task) -> dict[str, float]:
    """The method's settings on a task, as `Settings` names them."""
    if method.optimizer == "start":
        return {}
    if method.optimizer == "adamw":
        return {"lr": 1e-3, "weight_decay": 1e-2}
    return _shared(method.optimizer, task, method.chains)


def _shared(optimizer: str, task: Task, chains: int) -> dict[str, float]:
    made = recipe(task, chains)
    prior = {"momentum": made.momentum, "prior_variance": made.prior_variance}
    if optimizer == "sgd":
        return {"lr": made.lr / 2, **prior}
    noisy = {**prior, "temperature": made.temperature, "noise_from": made.burn_in}
    if optimizer == "emcmc":
        return {"lr": made.lr, "horizon": round(made.horizon / made.steps, 6), **noisy}
    return {"lr": made.lr / 2 * (SGLD_LR if optimizer == "sgld" else 1.0), **noisy}
