"""The recipe of a run: default settings for its network, data and budget, each with its reason."""

from __future__ import annotations

from entropy_mcmc import recipes, text_table
from entropy_mcmc.recipes import Recipe
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.methods import METHODS
from entropy_mcmc.run.model_and_data import Problem

STARTS = {
    "scratch": recipes.from_scratch,
    "trained": recipes.from_trained,
    "adapters": recipes.adapters,
}
# Settings that a recipe has reasons for: where the config keeps them, by the recipe's name.
PLACES = {
    "lr": "sampler.lr",
    "momentum": "sampler.momentum",
    "prior_variance": "sampler.prior_variance",
    "temperature": "sampler.temperature",
    "eta": "sampler.eta",
    "warm_up": "schedule.warm_up",
    "burn_in": "schedule.burn_in",
    "coupled": "schedule.coupled",
    "samples": "schedule.samples_per_cycle",
    "roles": "roles",
}

DEFAULT = "default of the method"
# What `run.methods` changes for regressions.
REGRESSION = {
    "lr": "a quarter of that for classes: the curvature grows as the learned noise shrinks",
    "burn_in": "noise in the last quarter: regressions improve until lr is small",
}


def recipe_of(config: RunConfig, problem: Problem) -> Recipe:
    """What `recipes` says about the run's network and data, for the whole budget of its chains."""
    chains = config.chains or 1
    least = 2 * config.data.batch_size / problem.num_data  # a recipe is for two steps or more
    passes = max(float(config.schedule.epochs), least) * chains
    size = problem.num_data, config.data.batch_size
    return STARTS[config.start](problem.model, *size, passes, chains=chains)


def explain_settings(given: RunConfig, resolved: RunConfig, recipe: Recipe) -> str:
    """A table of the settings that a run has, and why.

    Args:
        given: The config as the user wrote it.
        resolved: The same, complete.
        recipe: Where its defaults come from.
    """
    rows = []
    for name, place in PLACES.items():
        value = _at(resolved, place)
        if value is None or (name == "roles" and not METHODS[resolved.method].has_guide):
            continue
        reason = (
            "given" if _at(given, place) is not None else _reason(name, value, recipe, resolved)
        )
        rows.append([place, f"{value:.4g}" if isinstance(value, float) else str(value), reason])
    head = f'recipe "{recipe.name}" for {resolved.method}'
    return f"{head}\n{text_table.aligned(rows, left=None)}"


def _reason(name: str, value: object, recipe: Recipe, config: RunConfig) -> str:
    """Why a value was chosen; recipes are written for EMCMC, other methods have what fits them."""
    own = {**vars(recipe), **recipe.settings(config.method)}
    own |= {"eta": config.sampler.eta}  # chosen with the length of the cycle known
    if own.get(name) == value:
        return recipe.reasons.get(name, "")
    return REGRESSION.get(name, DEFAULT) if config.likelihood == "regression" else DEFAULT


def _at(config: RunConfig, place: str) -> object:
    value: object = config
    for name in place.split("."):
        value = getattr(value, name)
    return value
