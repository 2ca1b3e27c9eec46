"""The runs that the picture items share: every method, every seed, measured once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from entropy_mcmc_reproduction import search
from entropy_mcmc_reproduction.items import Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.methods import ENTRIES, PAPER, job
from entropy_mcmc_reproduction.scale import Scale, scale

ANALYSED = ("sgd", "sgld", "emcmc")  # the paper's three in its corruption and flatness studies
# The paper's hyper-parameters for CIFAR-100 where they differ from those for CIFAR-10.
_HUNDRED = {"emcmc": {"eta": 8e-3}}


def groups(size: str) -> tuple[str, ...]:
    """The data sets of a scale: full CIFAR-100 is only asked for at the paper's."""
    return ("cifar10", "cifar100") if size == "paper" else ("cifar10",)


def data_name(group: str, size: str) -> str:
    """The data set of a group: the smoke scale has digits in the place of CIFAR-10."""
    return str(scale(size).data["name"]) if group == "cifar10" else group


def jobs(size: str, place: Place) -> list[Job]:
    """All main runs of a scale."""
    chosen, numbers = scale(size), search.tuned(scale(size), place)
    made = []
    for group in groups(size):
        fitted = chosen if group == "cifar10" else _hundred(chosen)
        extra: Mapping[str, Any] = {} if group == "cifar10" else _HUNDRED
        for method in ENTRIES:
            own = {**numbers[method], **extra.get(method, {})}
            made += [
                job(
                    method,
                    seed,
                    fitted,
                    own,
                    group=group,
                    warm_numbers=numbers["sgd"],
                    measure=_measure(method, chosen),
                    keep=True,
                )
                for seed in chosen.seeds
            ]
    return made


def _hundred(chosen: Scale) -> Scale:
    return replace(chosen, data={**chosen.data, "name": "cifar100"})


def _measure(method: str, chosen: Scale) -> dict[str, Any]:
    wanted: dict[str, Any] = {"ood": list(chosen.ood)}
    if method in ANALYSED:
        wanted |= {"corruptions": chosen.corruptions, "flatness": chosen.flatness}
    return wanted


def of(results: Results, method: str, group: str = "cifar10") -> list[dict[str, Any]]:
    """Results of one method, by seed."""
    prefix = f"{group}/{method}-"
    names = [n for n in results if n.startswith(prefix) and n[len(prefix) :].isdigit()]
    return [results[name] for name in sorted(names, key=lambda n: int(n[len(prefix) :]))]


def finished(results: Results, group: str = "cifar10") -> list[str]:
    """Methods with at least one result, in the order of the tables."""
    return [method for method in ENTRIES if of(results, method, group)]


def values(found: list[dict[str, Any]], *path: str) -> list[float]:
    """One score of each result, found by its keys."""
    picked = []
    for result in found:
        value: Any = result
        for key in path:
            value = value[key]
        picked.append(float(value))
    return picked


def rival(results: Results, *path: str, lower: bool, group: str = "cifar10") -> str | None:
    """The paper's method, other than EMCMC, that is best in one score and has all seeds."""
    seeds = len(of(results, "emcmc", group))
    means = {}
    for method in PAPER:
        found = of(results, method, group)
        if method != "emcmc" and seeds and len(found) == seeds:
            means[method] = sum(values(found, *path)) / len(found)
    if not means:
        return None
    return (min if lower else max)(means, key=lambda method: means[method])


def budget_note(size: str) -> str:
    """The settings that were equal for all methods, in words."""
    chosen = scale(size)
    rows = chosen.data.get("rows") or "all"
    return (
        f"{chosen.model} on {rows} training pictures of {chosen.data['name']}"
        f"{', augmented' if chosen.augmented else ', without augmentation'}; every method has "
        f"{chosen.epochs} passes of gradients over them (of which cyclical methods share "
        f"{chosen.warm_epochs} of SGD as a start), batches of {chosen.batch_size}, "
        f"{len(chosen.seeds)} seed(s); ± is the standard error over seeds."
    )
