"""Figs. 4 and 5 at equal training NLL: what lies around the networks of each method.

The networks are those of `flatness_matched`: every method of a seed where it has the same training
NLL. Along random directions from each, training NLL and test error; the diagonal of its Fisher
information; and both from EMCMC's last θ to its guide of the same step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_mcmc import flatness
from entropy_mcmc_reproduction import neighbourhood_view as view
from entropy_mcmc_reproduction.flatness_matched import Checkpoint, matched_runs
from entropy_mcmc_reproduction.flatness_view import GUIDE, OURS
from entropy_mcmc_reproduction.items import Item
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.neighbourhood_view import METHODS, job_name
from tournament import trajectory
from tournament.data import Data
from tournament.tasks import TASKS

_COMMON: dict[str, Any] = {"task": "digits", "methods": list(METHODS), "rows": 500}
_FULL = {"share": 1.0, "checkpoints": 96, "directions": 10}
# In so few steps SAM, which makes half of them, does not come to the level of the others.
_SMOKE: dict[str, Any] = {"methods": ["SGD", "SGLD", "EMCMC"], "rows": 32}
_SMOKE |= {"share": 0.05, "checkpoints": 16, "directions": 2}
_SIZES: dict[str, tuple[int, dict[str, Any]]] = {
    "smoke": (2, _SMOKE),
    "laptop": (10, _FULL),
    "paper": (10, _FULL),
}
EDGES = np.linspace(-12.0, 2.0, 57)  # of the histogram, log10 of the Fisher diagonal
DISTANCES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
Pair = tuple[Tensor, Tensor]


def jobs(scale: str, place: Place) -> list[Job]:
    """One job for each seed."""
    seeds, sizes = _SIZES[scale]
    return [
        Job(job_name(seed), "neighbourhood:compute", {**_COMMON, **sizes, "seed": seed})
        for seed in range(seeds)
    ]


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """What lies around the matched networks, and between the last θ and guide."""
    runs, aim, chosen = matched_runs(settings)
    split = trajectory.data_of(settings["task"], settings["seed"])
    model = TASKS[settings["task"]].network().to(trajectory.device())
    few = flatness.subset((split.train.x, split.train.y), settings["rows"])
    roles = {
        role: {"train_nll": at.train_nll, **around(model, at, few, split, settings)}
        for role, at in chosen.items()
    }
    between = line(model, runs[OURS][-1], runs[GUIDE][-1], few, split)
    return {"level": aim, "distances": list(DISTANCES), "roles": roles, "between": between}


def around(
    model: nn.Module, at: Checkpoint, few: Pair, split: Data, settings: dict[str, Any]
) -> dict[str, Any]:
    """Rise of the training NLL along random directions, and the Fisher diagonal."""
    nn.utils.vector_to_parameters(at.weights.clone(), model.parameters())
    model.eval()
    walked = flatness.interpolate_random(
        model,
        F.cross_entropy,
        few,
        DISTANCES,
        directions=settings["directions"],
        test=(split.test.x, split.test.y),
        seed=settings["seed"],
    )
    assert walked.error is not None
    diagonal = flatness.fisher_diagonal(model, F.cross_entropy, few).variance.double()
    loss = walked.mean_loss
    return {
        "loss": loss.tolist(),
        "error": walked.error.mean(0).tolist(),
        "fisher": histogram(diagonal.cpu().numpy()),
        "measures": {
            "rise": math.log(max(loss[-1] - loss[0], 1e-12)),
            "fisher": math.log(float(diagonal.sum())),
        },
    }


def histogram(diagonal: npt.NDArray[np.float64]) -> list[int]:
    """How many parameters have a Fisher information between the edges; ends take the rest."""
    logs = np.log10(np.clip(diagonal, 1e-12, None))
    counts: list[int] = np.histogram(logs.clip(EDGES[0], EDGES[-1]), EDGES)[0].tolist()
    return counts


def line(
    model: nn.Module, theta: Checkpoint, guide: Checkpoint, few: Pair, split: Data
) -> dict[str, Any]:
    """Training NLL and test error from θ to its guide of the same step."""
    assert theta.step == guide.step
    states = []
    for at in (theta, guide):
        nn.utils.vector_to_parameters(at.weights.clone(), model.parameters())
        states.append({name: p.detach().clone() for name, p in model.named_parameters()})
    walked = flatness.interpolate_between(
        model, F.cross_entropy, few, *states, test=(split.test.x, split.test.y)
    )
    assert walked.error is not None
    loss = walked.loss[0]
    return {
        "loss": loss.tolist(),
        "error": walked.error[0].tolist(),
        "barrier": float(loss.max() - max(loss[0], loss[-1])),
        "distance": float(walked.distances[-1]),
    }


ITEM = Item(
    "What lies around the networks, at equal training NLL, digits",
    "Figs. 4 and 5, and the appendix",
    jobs,
    view.show,
    says="the loss is flatter around EMCMC's networks than around SGD's and SGLD's; θ and θ_a lie "
    "in one basin",
)
