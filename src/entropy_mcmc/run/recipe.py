"""The recipe of a run: default settings for its network, data and budget, each with its reason."""

from __future__ import annotations

from dataclasses import replace

from entropy_mcmc import recipes, text_table, units
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


def explain_settings(
    given: RunConfig, resolved: RunConfig, recipe: Recipe, cycle_steps: int
) -> str:
    """A table of the settings that a run has, and why.

    Args:
        given: The config as the user wrote it.
        resolved: The same, complete.
        recipe: Where its defaults come from.
        cycle_steps: Steps of a cycle; a step of replicas is a round of them.
    """
    made = _with_run(recipe, resolved, cycle_steps)
    rows = []
    for name, place in PLACES.items():
        value = _at(resolved, place)
        if value is None or (name == "roles" and not METHODS[resolved.method].has_guide):
            continue
        reason = "given" if _at(given, place) is not None else _reason(name, value, made, resolved)
        rows.append([place, f"{value:.4g}" if isinstance(value, float) else str(value), reason])
    head = f'recipe "{recipe.name}" for {resolved.method}'
    return f"{head}\n{text_table.aligned(rows, left=None)}"


def _reason(name: str, value: object, recipe: Recipe, config: RunConfig) -> str:
    """Why a value was chosen; recipes are written for EMCMC, other methods have what fits them."""
    own = {**vars(recipe), **recipe.settings(config.method)}
    if own.get(name) == value:
        return recipe.reasons.get(name, "")
    return REGRESSION.get(name, DEFAULT) if config.likelihood == "regression" else DEFAULT


def _with_run(recipe: Recipe, config: RunConfig, cycle_steps: int) -> Recipe:
    """The recipe with the values that the run chose when it knew its cycles, and their reasons."""
    eta, samples = config.sampler.eta, config.schedule.samples_per_cycle
    reasons = {**recipe.reasons, **_of_replicas(config)}
    if eta is not None and METHODS[config.method].has_guide:
        recipe = replace(recipe, eta=eta)
        reasons["eta"] = horizon_reason(config, recipe.num_data, cycle_steps)
    if samples is not None and samples < recipe.samples and not METHODS[config.method].point:
        recipe = replace(recipe, samples=samples)
        reasons["samples"] = f"no more than a cycle has noisy {_steps(config)}"
    return replace(recipe, reasons=reasons)


def horizon_reason(config: RunConfig, num_data: int, cycle_steps: int) -> str:
    """Why η: the steps, or rounds of replicas, over which the guide averages."""
    y, sampler, cycles = config.replicas, config.sampler, config.schedule.cycles
    assert sampler.lr is not None
    assert sampler.eta is not None
    # y replicas move the guide y times as fast.
    averaged = units.horizon(sampler.lr, num_data, sampler.eta) / y
    formula, who = ("ηN/lr", "θ") if y == 1 else (f"ηN/({y}·lr)", f"{y} replicas")
    share = f"{averaged / cycle_steps:.0%} of a {'chain' if cycles == 1 else 'cycle'}"
    return f"the guide averages {who} over {formula} = {averaged:.3g} {_steps(config)}, {share}"


def _of_replicas(config: RunConfig) -> dict[str, str]:
    """Reasons that differ with several replicas of θ; none for one."""
    if config.replicas == 1:
        return {}
    reasons = {
        "coupled": "burn-in is plain SGD of one network; all replicas and θ_a start as it after it",
        "roles": f"every replica is kept; the guide carries √(ηT/{config.replicas}) of noise",
    }
    if config.roles != "guide":
        reasons["samples"] = "evenly spaced over the noisy part; each has a network per replica"
    return reasons


def _steps(config: RunConfig) -> str:
    return "steps" if config.replicas == 1 else "rounds"


def _at(config: RunConfig, place: str) -> object:
    value: object = config
    for name in place.split("."):
        value = getattr(value, name)
    return value
