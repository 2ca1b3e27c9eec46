"""The search: every method gets the same number of trials, judged on held-out training data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc_reproduction.jobs import Job, Place, diverged, read, strict
from entropy_mcmc_reproduction.methods import ENTRIES, job
from entropy_mcmc_reproduction.scale import Scale
from entropy_mcmc_reproduction.trials import latin

GROUP = "search"
SEED = 0


def trials(method: str, count: int) -> list[dict[str, float]]:
    """The hyper-parameters of a method's trials.

    >>> [round(t["lr"], 3) for t in sorted(trials("sgd", 3), key=lambda t: t["lr"])]
    [0.018, 0.055, 0.17]
    """
    return latin(method, ENTRIES[method].space, count)


def jobs(chosen: Scale, methods: Iterable[str]) -> list[Job]:
    """All trials of some methods, at the search's length, on the validation split."""
    data = {**chosen.data, "validation": True, "test_rows": chosen.validation_rows}
    changes = {"data": {"options": data}}
    warm = {"lr": 0.1}
    return [
        job(
            method,
            SEED,
            chosen,
            numbers,
            group=GROUP,
            label=f"{method}-trial{index}",
            part=chosen.search_part,
            warm_numbers=warm,
            changes=changes,
        )
        for method in methods
        for index, numbers in enumerate(trials(method, chosen.trials))
    ]


def choose(chosen: Scale, place: Place) -> dict[str, Any]:
    """The best trial of each method by validation NLL; written to `tuned.json`."""
    found: dict[str, Any] = {}
    for method in ENTRIES:
        results = [(read(place, j), n) for j, n in _pairs(chosen, method)]
        ranked = [(judged(r), n) for r, n in results if r is not None]
        if len(ranked) < chosen.trials:
            raise ConfigError(f"the search of {method} is not finished: {len(ranked)} trials")
        best = min(range(len(ranked)), key=lambda i: ranked[i][0])
        if not math.isfinite(ranked[best][0]):
            raise ConfigError(f"every trial of {method} diverged; search over smaller step sizes")
        found[method] = {
            "numbers": ranked[best][1],
            "validation_nll": ranked[best][0],
            "all": [{"validation_nll": nll, **numbers} for nll, numbers in ranked],
        }
    with atomic(tuned_file(place)) as temporary:
        temporary.write_text(json.dumps(strict(found), indent=1) + "\n", encoding="utf-8")
    return found


def judged(result: Mapping[str, Any]) -> float:
    """The validation NLL of a trial; infinite if it diverged."""
    nll = math.inf if diverged(result) else float(result["test"]["both"]["nll"])
    return math.inf if math.isnan(nll) else nll


def _pairs(chosen: Scale, method: str) -> list[tuple[Job, Mapping[str, float]]]:
    return list(zip(jobs(chosen, [method]), trials(method, chosen.trials), strict=True))


def tuned_file(place: Place) -> Any:
    """The file of the chosen hyper-parameters."""
    return place.results / "tuned.json"


def tuned(chosen: Scale, place: Place) -> dict[str, dict[str, float]]:
    """The chosen hyper-parameters of each method.

    The paper's scale has the paper's own; the smoke scale the middle of each range.
    """
    if chosen.name == "paper":
        return {method: {} for method in ENTRIES}
    if not chosen.trials:
        return {method: trials(method, 1)[0] for method in ENTRIES}
    path = tuned_file(place)
    if not path.exists():
        raise ConfigError(f"{path} is missing; run `emcmc reproduce search` first")
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {method: stored[method]["numbers"] for method in ENTRIES}
