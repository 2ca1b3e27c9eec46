"""The first league: every method by its own recipe, without a trial.

All settings are those of `entropy_mcmc.recipes`: the same prior, lr and momentum for all methods
(SGLD, which has no momentum, has four times the lr), the same part of the run from which networks
are kept and, where there is noise, the same temperature. What the recipe does not know of the
reproduction's rivals is in `RIVALS`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from entropy_mcmc import recipes
from tournament.methods import Method
from tournament.optimizers import unit
from tournament.tasks import Task

# Beside prior and momentum: its authors' values, or what `rivals.py` found better on development
# tasks, which is T for bSAM and IVON and bSAM's lr. SAM: Foret et al. (2021). bSAM: Möllenhoff and
# Khan (2023). IVON: Shen et al. (2024). Entropy-SGD: Chaudhari et al. (2017), with SGLD's lr in the
# inner chain, which has no momentum either.
RIVALS: dict[str, dict[str, Any]] = {
    "sam": {"rho": 0.05},
    "bsam": {"lr": 1.0, "rho": 0.01, "scale": 1.0, "temperature": 0.005},
    "ivon": {"lr": 0.2, "scale": 0.5, "temperature": 0.005},
    "entropy-sgd": {"inner_steps": 5, "temperature": 1e-4},
    "entropy-sgld": {"inner_steps": 5},
}
# With all pictures bSAM's s forgets its start and falls to its damping, where the lr above
# diverges: searched again on that task.
LONGER: dict[str, dict[str, dict[str, Any]]] = {"fashion-mlp-60k": {"bsam": {"lr": 0.25}}}
AS_SGLD = ("entropy-sgd", "entropy-sgld")


@lru_cache(maxsize=64)  # a recipe looks at the network, which may be large
def recipe(task: Task, chains: int = 1, passes: float | None = None) -> recipes.Recipe:
    """What the library's recipe says about a task with its budget, or another one."""
    make = recipes.from_trained if task.start else recipes.from_scratch
    size = task.train, task.batch, passes or task.passes
    return make(task.network(), *size, chains=chains, unit=unit(task))


def knobs(method: Method, task: Task, passes: float | None = None) -> dict[str, Any]:
    """The method's settings on a task, as `Settings` names them."""
    if method.optimizer == "start":
        return {}
    if method.optimizer == "adamw":
        return {"lr": 1e-3, "weight_decay": 1e-2}
    made = recipe(task, method.chains, passes)
    values = made.settings("sgld" if method.optimizer in AS_SGLD else method.optimizer)
    knobs: dict[str, Any] = {"lr": values.get("lr"), "prior_variance": made.prior_variance}
    knobs |= {"momentum": values.get("momentum", 0.0), "noise_from": made.burn_in}
    if made.warm_up:
        knobs["warm_up"] = made.warm_up
    if "temperature" in values:
        knobs["temperature"] = made.temperature
    if method.optimizer == "emcmc":
        knobs |= {"horizon": round(made.horizon / made.steps, 6), "coupled": made.coupled}
    longer = LONGER.get(task.name, {})
    return knobs | RIVALS.get(method.optimizer, {}) | longer.get(method.optimizer, {})
