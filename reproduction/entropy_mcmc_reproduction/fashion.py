"""Beyond the paper: complete Fashion-MNIST with three out-of-distribution sets, a small CNN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from entropy_mcmc_reproduction import fashion_view, methods, search, tasks
from entropy_mcmc_reproduction.fashion_view import METHODS, job_name
from entropy_mcmc_reproduction.items import Item
from entropy_mcmc_reproduction.jobs import Job, Place, result_of
from entropy_mcmc_reproduction.scale import Scale

STRANGERS = ("mnist", "kmnist", "notmnist")
WARM = {"lr": 0.05}  # of the SGD run from which the cyclical methods start
SEARCH = "fashion-search"
WIDTH = 8  # channels of the first convolution

_FULL = Scale(
    name="fashion",
    data={"name": "fashion-mnist", "rows": 60_000},
    model="cnn",
    augmented=False,
    batch_size=256,
    epochs=16,
    warm_epochs=8,
    cycles=4,
    samples=8,
    burn_in=0.8,
    seeds=(0, 1, 2),
    ood=STRANGERS,
    corruptions={},
    trials=4,
    validation_rows=5000,
    search_part=0.25,
    threads=1,
)
_SMOKE = replace(
    _FULL,
    data={"name": "digits", "rows": 128, "test_rows": 64},
    batch_size=16,
    epochs=8,
    warm_epochs=4,
    cycles=2,
    samples=4,
    burn_in=0.5,
    seeds=(0,),
    ood=("shuffled",),
    trials=2,
    validation_rows=64,
    search_part=1.0,
)


def sized(scale: str) -> Scale:
    """The settings of a scale; the paper has no such experiment, so its scale is the laptop's."""
    return _SMOKE if scale == "smoke" else _FULL


def jobs(scale: str, place: Place) -> list[Job]:
    """Trials of every method, then every method and seed at its best trial."""
    chosen = sized(scale)
    return [
        _final(method, seed, chosen, _trials(method, chosen))
        for method in METHODS
        for seed in chosen.seeds
    ]


def unavailable(scale: str, place: Place) -> str | None:
    """The pictures are not embedded."""
    if scale == "smoke" or place.data:
        return None
    return "it needs Fashion-MNIST, MNIST, KMNIST and notMNIST: set EMCMC_DATA"


def _trials(method: str, chosen: Scale) -> list[tuple[Job, dict[str, float]]]:
    """Jobs on the end of the training split, and their hyper-parameters."""
    rows = min(chosen.data["rows"], 60_000 - chosen.validation_rows)
    data = {**chosen.data, "validation": True, "test_rows": chosen.validation_rows, "rows": rows}
    held = replace(chosen, data=data)
    return [
        (_job(method, 0, held, numbers, f"{method}-trial{i}", group=SEARCH), numbers)
        for i, numbers in enumerate(search.trials(method, chosen.trials))
    ]


def _final(
    method: str, seed: int, chosen: Scale, trials: list[tuple[Job, dict[str, float]]]
) -> Job:
    """A job that looks up which trial was best; it holds the config of each of them."""
    made = [_job(method, seed, chosen, numbers, method, group="fashion") for _, numbers in trials]
    settings = {
        "candidates": [
            {"trial": trial.name, "numbers": numbers, "run": job.settings}
            for (trial, numbers), job in zip(trials, made, strict=True)
        ]
    }
    after = (*(trial for trial, _ in trials), *made[0].after)
    return Job(job_name(method, seed), "fashion:best", settings, after)


def _job(
    method: str, seed: int, chosen: Scale, numbers: dict[str, float], label: str, group: str
) -> Job:
    found = methods.job(
        method,
        seed,
        chosen,
        numbers,
        group=group,
        label=label,
        part=chosen.search_part if group == SEARCH else 1.0,
        warm_numbers=WARM,
        measure={} if group == SEARCH else {"ood": list(chosen.ood)},
    )
    return _fitted(found, 8 if chosen.data["name"] == "digits" else 28)


def _fitted(job: Job, side: int) -> Job:
    """The CNN, with its width and the size of its pictures."""
    config = dict(job.settings["config"])
    options = {**config["model"]["options"], "image_size": side, "width": WIDTH}
    config["model"] = {**config["model"], "options": options}
    after = tuple(_fitted(earlier, side) for earlier in job.after)
    return Job(job.name, job.task, {**job.settings, "config": config}, after)


def best(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Run the candidate whose trial had the lowest NLL on held-out training pictures."""
    candidates = settings["candidates"]
    scores = [search.judged(result_of(place, candidate["trial"])) for candidate in candidates]
    index = min(range(len(scores)), key=lambda i: scores[i])
    result = tasks.sample(candidates[index]["run"], place)
    chosen = {"numbers": candidates[index]["numbers"], "validation_nll": scores}
    return {**result, "chosen": chosen}


ITEM = Item(
    "Fashion-MNIST with MNIST, KMNIST and notMNIST as OOD sets",
    "beyond the paper",
    jobs,
    fashion_view.show,
    unavailable,
)
