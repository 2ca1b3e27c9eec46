"""Table 1c: ResNet-50 on ImageNet by the library's recipe, for GPUs; smoke: made-up pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc import metrics
from entropy_mcmc.run.config import from_dict, with_parts
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.runner import run
from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.paper_values import IMAGENET, against
from entropy_mcmc_reproduction.seeds import by_seed
from entropy_mcmc_reproduction.text import number

METHODS = {"sgd": "SGD", "sghmc": "SGHMC", "emcmc": "EMCMC"}  # SGLD with momentum is SGHMC
SEEDS = {"smoke": 2, "paper": 3}
COLUMNS = (("nll", 1.0), ("accuracy", 100.0), ("top5", 100.0))
_TINY = {"passes": 4, "network": "resnet8", "batch": 4, "workers": 0, "precision": "32-true"}
_FULL = {"passes": 200, "network": "resnet50", "batch": 256, "workers": 8}
_FULL["precision"] = "bf16-mixed"


def jobs(size: str, place: Place) -> list[Job]:
    """Each method by its recipe, the same passes for all."""
    return [_job(method, seed, size) for method in METHODS for seed in range(SEEDS.get(size, 3))]


def _job(method: str, seed: int, size: str) -> Job:
    tiny = size == "smoke"
    chosen: dict[str, Any] = _TINY if tiny else _FULL
    data = {"name": "imagenet", "batch_size": chosen["batch"], "augmented": True}
    config = {
        "method": method,
        "seed": seed,
        "model": {"name": chosen["network"]},
        "data": {**data, "workers": chosen["workers"]},
        "schedule": {"epochs": chosen["passes"]},
        "compute": {"precision": chosen["precision"], "threads": None},
    }
    name = f"imagenet/{method}-{seed}"
    return Job(name, "imagenet:train", {"name": name, "tiny": tiny, "config": config})


def train(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Sample, then top-1, top-5 and NLL on the validation pictures."""
    data = _tiny(place.work) if settings["tiny"] else place.data
    folder = place.folder(settings["name"])
    config = replace(from_dict(settings["config"]), run_dir=str(folder))
    output = {"progress": False, "baseline": "none"}
    run(with_parts(config, data={"folder": data}, output=output))
    done = load_run(folder)
    targets = np.concatenate([np.asarray(y) for _, y in done.problem.test])
    probs = np.asarray(done.posterior.predict_proba(done.problem.test).double())
    measures = {
        "nll": float(metrics.nll(probs, targets)),
        "accuracy": float(metrics.accuracy(probs, targets)),
        "top5": top_accuracy(probs, targets, 5),
    }
    return {"measures": measures, "samples": len(done.posterior), "pictures": len(targets)}


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
    rows = []
    for method, label in METHODS.items():
        if seeds := list(by_seed(results, f"imagenet/{method}").values()):
            cells = [number([s["measures"][k] for s in seeds], 3, f) for k, f in COLUMNS]
            rows.append([label, str(len(seeds)), *cells])
    claims = [
        Claim(
            f"EMCMC is better than {METHODS[m]}",
            "imagenet/emcmc",
            f"imagenet/{m}",
            measure,
            against(measure, IMAGENET[measure], METHODS[m]),
            source="paper" if METHODS[m] in IMAGENET[measure] else "ours",
            short=f"than {METHODS[m]}",
        )
        for measure in ("nll", "accuracy")
        for m in ("sgd", "sghmc")
    ]
    notes = ["Made-up pictures: shows that the path runs, and nothing else."]
    columns = ["method", "seeds", "NLL", "top-1 %", "top-5 %"]
    return Outcome(columns, rows, verdicts(claims, results), notes=notes if size == "smoke" else [])


def _unavailable(size: str, place: Place) -> str | None:
    if size == "laptop":
        return "it has the paper's size only, which needs ImageNet and GPUs: --scale paper"
    if size == "paper" and not (Path(place.data or ".") / "imagenet" / "train").is_dir():
        return f"{place.data or 'EMCMC_DATA'}/imagenet/train is not there"
    return None


ITEM = Item(
    "ResNet-50 on ImageNet",
    "Table 1c",
    jobs,
    show,
    _unavailable,
    "EMCMC predicts better than SGD and SGLD",
)
