"""Fig. 3: logistic regression of MNIST's 7 against 9, every method with its own step sizes.

The seeds run as one stack of parameters: the loss is the sum of theirs, so that gradients, batches
and noise of different seeds never meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_mcmc import data as data_sets
from entropy_mcmc import units
from entropy_mcmc.samplers import SGLD, EntropyMCMC, EntropySGD, EntropySGLD, Sampler
from entropy_mcmc_reproduction import logistic_view
from entropy_mcmc_reproduction.items import Item
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.logistic_view import METHODS, job_name
from entropy_mcmc_reproduction.trials import latin

INNER = 5  # gradients of one step of the nested methods
_RATE = (0.003, 1.0)
_NESTED = {"inner_lr": _RATE, "width": (0.2, 20.0), "pull": (0.3, 1.5)}
# Searched hyper-parameters; `horizon` and `width` are η in natural units, see `_sampler`.
SPACES: dict[str, dict[str, tuple[float, float]]] = {
    "emcmc": {"lr": (0.006, 2.0), "horizon": (2.0, 50.0)},
    "sgld": {"lr": _RATE},
    "entropy-sgd": _NESTED,
    "entropy-sgld": _NESTED,
}
_MNIST = {"data": "mnist", "seeds": 10, "gradients": 2000, "every": 5, "trials": 12}
_SIZES = {
    "smoke": {"data": "digits", "seeds": 3, "gradients": 200, "every": 10, "trials": 2},
    "laptop": _MNIST,
    "paper": _MNIST,
}


def jobs(scale: str, place: Place) -> list[Job]:
    """One job for each method: its search, then its ten seeds."""
    common: dict[str, Any] = {"batch_size": 128, "temperature": 1.0, "inner_steps": INNER}
    common |= {"search_every": 20, **_SIZES[scale]}
    return [
        Job(
            job_name(method),
            "logistic:compute",
            {**common, "method": method, "space": {k: list(v) for k, v in SPACES[method].items()}},
        )
        for method in METHODS
    ]


def unavailable(scale: str, place: Place) -> str | None:
    """MNIST is not embedded."""
    if scale == "smoke" or place.data:
        return None
    return "it needs MNIST: set EMCMC_DATA"


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Search on the training NLL with one seed, then run all seeds at the best hyper-parameters."""
    problem = Problems(settings, place.data)
    trials = latin(settings["method"], settings["space"], settings["trials"])
    coarse = {**settings, "every": settings["search_every"]}
    scored = []
    for numbers in trials:
        found = _curves(problem, coarse, numbers, seeds=1, first_seed=1000)
        scored.append({**numbers, "mean_train_nll": _area(found["train_nll"])[0]})
    best = min(range(len(trials)), key=lambda i: float(scored[i]["mean_train_nll"]))
    found = _curves(problem, settings, trials[best], seeds=settings["seeds"], first_seed=0)
    return {
        "rows": len(problem.targets),
        "numbers": trials[best],
        "trials": scored,
        **_summary(found, settings),
    }


class Problems:
    """Two classes as 0 and 1, with a column of ones for the bias."""

    def __init__(self, settings: dict[str, Any], folder: str | None) -> None:
        train, test = (
            data_sets.load(settings["data"], folder=folder, split=s).only([7, 9])
            for s in ("train", "test")
        )
        self.inputs, self.test_inputs = (
            F.pad(train.normalise(part.inputs).flatten(1), (0, 1), value=1.0)
            for part in (train, test)
        )
        self.targets, self.test_targets = train.targets.float(), test.targets.float()

    def loss(self, theta: Tensor, rows: Tensor) -> Tensor:
        """Sum over seeds of the mean loss on (seed, row)."""
        logits = torch.einsum("sbd,sd->sb", self.inputs[rows], theta)
        losses = F.binary_cross_entropy_with_logits(logits, self.targets[rows], reduction="none")
        return losses.mean(1).sum()

    @torch.no_grad()
    def train_nll(self, theta: Tensor) -> Tensor:
        """On all training rows, by seed."""
        logits = theta @ self.inputs.T
        targets = self.targets.expand_as(logits)
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1)

    @torch.no_grad()
    def test_probability(self, theta: Tensor) -> Tensor:
        """Probability of class 1, (seed, row)."""
        return (theta @ self.test_inputs.T).sigmoid()

    def accuracy(self, probability: Tensor) -> Tensor:
        """Test accuracy of each seed."""
        return ((probability > 0.5) == (self.test_targets > 0.5)).double().mean(1)


def _sampler(
    settings: dict[str, Any], numbers: dict[str, float], theta: Tensor, count: int, seed: int
) -> Sampler:
    """`horizon` is ηN/lr; `width` ηN/(L·inner lr); `pull` lr/(ηN) of the outer step."""
    common: dict[str, Any] = {"num_data": count, "prior_variance": 1.0, "seed": seed}
    common |= {"temperature": settings["temperature"], "fused": False}
    if settings["method"] == "sgld":
        return SGLD([theta], numbers["lr"], **common)
    if settings["method"] == "emcmc":
        eta = units.eta_of_horizon(numbers["horizon"], numbers["lr"], count)
        return EntropyMCMC([theta], numbers["lr"], eta=eta, **common)
    steps = settings["inner_steps"]
    wide = numbers["width"] * steps * numbers["inner_lr"]
    kind = EntropySGD if settings["method"] == "entropy-sgd" else EntropySGLD
    return kind(
        [theta],
        numbers["pull"] * wide,
        eta=units.eta_of_horizon(numbers["width"] * steps, numbers["inner_lr"], count),
        inner_lr=numbers["inner_lr"],
        inner_steps=steps,
        **common,
    )


def _curves(
    problem: Problems, settings: dict[str, Any], numbers: dict[str, float], seeds: int, **rest: int
) -> dict[str, Any]:
    """Everything that is looked at, at every `every` gradients: (time, seed)."""
    found: dict[str, Any] = {"train_nll": [], "accuracy": [], "guide_nll": [], "guide_accuracy": []}
    total, count = torch.zeros(()), 0
    points = settings["gradients"] // settings["every"] + 1
    for index, (theta, guide) in enumerate(_run(problem, settings, numbers, seeds, **rest)):
        for prefix, value in (("", theta), ("guide_", guide)):
            if value is None:
                continue
            probability = problem.test_probability(value)
            found[prefix + ("nll" if prefix else "train_nll")].append(problem.train_nll(value))
            found[f"{prefix}accuracy"].append(problem.accuracy(probability))
            if 2 * index >= points:
                total, count = total + probability.double(), count + 1
    average = total / count
    found["average_accuracy"] = problem.accuracy(average).tolist()
    targets = problem.test_targets.double().expand_as(average)
    losses = F.binary_cross_entropy(average, targets, reduction="none")
    found["average_nll"] = losses.mean(1).tolist()
    stacks = {k: torch.stack(v).double().numpy() for k, v in found.items() if v and k in _STACKED}
    return {**found, **stacks}


_STACKED = ("train_nll", "accuracy", "guide_nll", "guide_accuracy")


def _run(
    problem: Problems, settings: dict[str, Any], numbers: dict[str, float], seeds: int, **rest: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """θ (seed, feature) and its guide, at the start and after every `every` gradients."""
    count, first = len(problem.targets), rest["first_seed"]
    draws = torch.Generator().manual_seed(first)
    theta = nn.Parameter(torch.zeros(seeds, problem.inputs.shape[1]))
    sampler = _sampler(settings, numbers, theta, count, first)
    nested = sampler.needs_closure
    guided = settings["method"] == "emcmc"

    def loss() -> Tensor:
        rows = torch.randint(count, (seeds, settings["batch_size"]), generator=draws)
        sampler.zero_grad()
        value = problem.loss(theta, rows)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    yield theta.detach().clone(), theta.detach().clone() if guided else None
    for _ in range(settings["gradients"] // settings["every"]):
        for _ in range(settings["every"] // (settings["inner_steps"] if nested else 1)):
            sampler.step(loss)
        yield theta.detach().clone(), _guide(sampler, theta) if guided else None


def _guide(sampler: Any, theta: Tensor) -> Tensor:
    with sampler.guide():
        return theta.detach().clone()


def _area(curve: Any) -> list[float]:
    """Mean over time of (time, seed), by the trapezoid rule; what diverged counts as 1e3."""
    kept = np.nan_to_num(np.asarray(curve), nan=1e3, posinf=1e3).clip(max=1e3)
    areas = (kept[:-1] + kept[1:]).mean(0) / 2
    return [float(a) for a in areas]


def _summary(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    nested = settings["method"].startswith("entropy")
    per_step = settings["inner_steps"] if nested else 1
    every, budget = settings["every"], settings["gradients"]
    gradients = list(range(0, budget + 1, every))
    # The nested methods make this many iterations with the budget; per iteration all get as many.
    steps = budget // settings["inner_steps"]
    kept = steps * per_step // every + 1
    result: dict[str, Any] = {
        "gradients": gradients,
        "iterations": [g // per_step for g in gradients],
        "mean_nll_by_gradient": _area(found["train_nll"]),
        "mean_nll_by_iteration": _area(found["train_nll"][:kept]),
        "average_accuracy": found["average_accuracy"],
        "average_nll": found["average_nll"],
    }
    result["curves"] = {n: _mean_and_error(found[n]) for n in _STACKED if len(found[n])}
    result["last"] = {n: found[n][-1].tolist() for n in _STACKED if len(found[n])}
    return result


def _mean_and_error(curve: Any) -> dict[str, list[float]]:
    """Over seeds, of (time, seed)."""
    errors = curve.std(1, ddof=1) / np.sqrt(curve.shape[1])
    parts = {"mean": curve.mean(1), "error": errors}
    return {name: [round(float(v), 6) for v in values] for name, values in parts.items()}


ITEM = Item(
    "Logistic regression, MNIST 7 against 9", "Fig. 3", jobs, logistic_view.show, unavailable
)
