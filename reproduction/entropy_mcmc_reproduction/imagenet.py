"""Table 1c: ResNet-50 on ImageNet; here only on a tiny folder of made-up pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc import metrics
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.runner import run
from entropy_mcmc_reproduction.cifar import ANALYSED
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.methods import ENTRIES, run_config
from entropy_mcmc_reproduction.text import compared, number

# The authors' code: momentum 0.9 for EMCMC, and none for its SGLD; here both have it.
_NUMBERS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
    "sghmc": {"lr": 0.1, "momentum": 0.9, "temperature": 1e-4, "weight_decay": 1e-4},
    "emcmc": {
        "lr": 0.2,
        "momentum": 0.9,
        "eta": 4e-4,
        "temperature": 1e-4,
        "weight_decay": 1e-4,
    },
}
_ENGINE = {"sgd": "sgd", "sgld": "sghmc", "emcmc": "emcmc"}


def jobs(size: str, place: Place) -> list[Job]:
    """SGD, SGLD (with momentum) and EMCMC."""
    seeds = (0,) if size == "smoke" else (0, 1, 2)
    return [_job(method, seed, size) for method in ANALYSED for seed in seeds]


def _job(method: str, seed: int, size: str) -> Job:
    tiny = size == "smoke"
    engine = _ENGINE[method]
    numbers = {**_NUMBERS[engine], **({"eta": 1.0} if tiny and method == "emcmc" else {})}
    cyclical = method != "sgd"
    schedule: dict[str, Any] = {"epochs": 4 if tiny else 200}
    if cyclical:
        schedule |= {"cycles": 1 if tiny else 4, "burn_in": 0.5 if tiny else 0.8}
        schedule |= {"samples_per_cycle": 1 if tiny else (2 if method == "emcmc" else 4)}
    name = f"imagenet/{method}-{seed}"
    settings = {
        "name": name,
        "tiny": tiny,
        "config": {
            "method": engine,
            "seed": seed,
            "model": {"name": "resnet8" if tiny else "resnet50"},
            "data": {
                "name": "imagenet",
                "batch_size": 4 if tiny else 256,
                "augmented": True,
                "workers": 0 if tiny else 8,
            },
            "sampler": numbers,
            "schedule": schedule,
            "compute": {"precision": "32-true" if tiny else "bf16-mixed", "threads": None},
        },
    }
    return Job(name, "imagenet:train", settings)


def train(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Sample, then top-1, top-5 and NLL on the validation pictures."""
    data = _tiny(place.work) if settings["tiny"] else place.data
    folder = place.folder(settings["name"])
    config = replace(run_config(settings["config"]), run_dir=str(folder))
    config = with_parts(
        config, data={"folder": data}, output={"progress": False, "baseline": "none"}
    )
    run(config)
    done = load_run(folder)
    targets = np.concatenate([np.asarray(y) for _, y in done.problem.test])
    probs = np.asarray(done.posterior.predict_proba(done.problem.test).double())
    return {
        "samples": len(done.posterior),
        "nll": float(metrics.nll(probs, targets)),
        "top1": float(metrics.accuracy(probs, targets)),
        "top5": top_accuracy(probs, targets, 5),
        "pictures": len(targets),
    }


def top_accuracy(probs: Any, targets: Any, k: int) -> float:
    """Part of rows whose target is among the k most probable classes.

    >>> top_accuracy(np.array([[0.5, 0.3, 0.2]]), np.array([1]), 2)
    1.0
    """
    best = np.argsort(-probs, axis=1)[:, :k]
    return float((best == np.asarray(targets)[:, None]).any(axis=1).mean())


def _tiny(work: Path) -> str:
    """A folder of made-up pictures in ImageNet's layout: six classes of coloured noise."""
    from PIL import Image

    base = work / "tiny-imagenet"
    for split, each in (("train", 2), ("val", 1)):
        for label in range(6):
            folder = base / "imagenet" / split / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            for picture in range(each):
                draws = np.random.default_rng([label, picture]).integers(0, 128, (48, 48, 3))
                pixels = (draws + 20 * label).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{picture}.png")
    return str(base)


def show(results: Results, size: str) -> Outcome:
    """The table, and EMCMC against the others."""
    rows, found = [], {m: _seeds(results, m) for m in ANALYSED}
    for method, seeds in found.items():
        if seeds:
            cells = [number([s[k] for s in seeds], 3, f) for k, f in _COLUMNS]
            rows.append([ENTRIES[method].label, *cells])
    made = [
        compared(
            f"EMCMC has a better top-1 accuracy than {ENTRIES[other].label}",
            [s["top1"] for s in found["emcmc"]],
            [s["top1"] for s in found[other]],
            lower=False,
            percent=True,
        )
        for other in ("sgd", "sgld")
        if size == "paper" and found["emcmc"] and len(found[other]) == len(found["emcmc"])
    ]
    notes = ["Made-up pictures: shows that the path runs, and nothing else."]
    return Outcome(
        ["method", "NLL", "top-1 %", "top-5 %"], rows, made, notes=notes if size == "smoke" else []
    )


_COLUMNS = (("nll", 1.0), ("top1", 100.0), ("top5", 100.0))


def _seeds(results: Results, method: str) -> list[dict[str, Any]]:
    return [result for name, result in results.items() if name.startswith(f"imagenet/{method}-")]


def _unavailable(size: str, place: Place) -> str | None:
    if size == "laptop":
        return "ImageNet cannot be had here; `--scale paper` has the paper's configs"
    if size == "paper" and not (Path(place.data or ".") / "imagenet" / "train").is_dir():
        return f"{place.data or 'EMCMC_DATA'}/imagenet/train is not there"
    return None


ITEM = Item("ResNet-50 on ImageNet", "Table 1c", jobs, show, _unavailable)
