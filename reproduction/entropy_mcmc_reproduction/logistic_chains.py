"""Logistic regressions side by side: θ is (seed, setting, weight).

The library's own rules move them, with coefficients as columns (setting, 1). Every seed has its own
mini-batches and its own noise; the batches of a seed are the same for all settings and methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from entropy_mcmc import data as data_sets
from entropy_mcmc import units
from entropy_mcmc.samplers import SGLD, EntropyMCMC, EntropySGD, EntropySGLD
from entropy_mcmc.samplers.entropy_sgd import (
    Inner,
    InnerCoefficients,
    Outer,
    OuterCoefficients,
    inner_chain,
    outer_step,
)

INNER = 5  # gradients of one step of the nested methods
Gradient = Callable[[Tensor], Tensor]
Group = dict[str, Any]
METHODS = ("emcmc", "sgld", "entropy-sgd", "entropy-sgld", "sgd")


class Rows(NamedTuple):
    """Inputs with a column of ones for the bias, and targets 0 or 1."""

    inputs: Tensor
    targets: Tensor


class Parts(NamedTuple):
    """Training rows without the validation rows, these, and the test rows."""

    train: Rows
    validation: Rows
    test: Rows


@dataclass(frozen=True)
class Course:
    """Gradients of a run, those between two looks at it, rows of a mini-batch, and T."""

    gradients: int
    every: int
    batch: int
    temperature: float


class State(NamedTuple):
    """θ and its guide, if there is one, each (seed, setting, weight)."""

    theta: Tensor
    guide: Tensor | None

    @property
    def roles(self) -> list[Tensor]:
        """What predicts."""
        return [self.theta] if self.guide is None else [self.theta, self.guide]


def read(name: str, folder: str | None, validation: int) -> Parts:
    """The 7s and 9s of a set of digits; the validation rows are drawn from the training rows."""
    train, test = (
        data_sets.load(name, folder=folder, split=split).only([7, 9]) for split in ("train", "test")
    )
    known, judged = (
        Rows(
            F.pad(train.normalise(part.inputs).flatten(1), (0, 1), value=1.0), part.targets.float()
        )
        for part in (train, test)
    )
    order = torch.randperm(len(known.targets), generator=torch.Generator().manual_seed(0))
    held, kept = order[:validation], order[validation:]
    parts = [Rows(known.inputs[rows], known.targets[rows]) for rows in (kept, held)]
    return Parts(parts[0], parts[1], judged)


def nll(theta: Tensor, rows: Rows) -> Tensor:
    """Mean NLL of each (seed, setting)."""
    logits = theta @ rows.inputs.T
    targets = rows.targets.expand_as(logits)
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1)


def probability(theta: Tensor, rows: Rows) -> Tensor:
    """Probability of class 1, (seed, setting, row)."""
    return (theta @ rows.inputs.T).sigmoid()


def gradient(theta: Tensor, batch: Rows) -> Tensor:
    """Gradient of the mean loss on each seed's batch, which has inputs (seed, row, weight)."""
    residuals = (theta @ batch.inputs.mT).sigmoid() - batch.targets[:, None]
    return residuals @ batch.inputs / batch.inputs.shape[1]


class Draws:
    """Mini-batches and noise, each seed with generators of its own."""

    def __init__(self, seeds: Sequence[int], train: Rows, batch: int) -> None:
        self.batches = [torch.Generator().manual_seed(2 * seed) for seed in seeds]
        self.noise = [torch.Generator().manual_seed(2 * seed + 1) for seed in seeds]
        self.train, self.batch = train, batch

    def rows(self) -> Rows:
        """A new mini-batch of each seed, drawn with replacement."""
        count = len(self.train.targets)
        places = torch.stack(
            [torch.randint(count, (self.batch,), generator=each) for each in self.batches]
        )
        return Rows(self.train.inputs[places], self.train.targets[places])

    def normals(self, count: int, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """Standard normals of the shape of θ: none, one (twice the same), or a pair."""
        if not count:
            return None
        shape = (count, *like.shape[1:])
        drawn = torch.stack([torch.randn(shape, generator=each) for each in self.noise], 1)
        return drawn[0], drawn[-1]


def columns(coefficients: Sequence[Any]) -> Any:
    """Coefficients of all settings as one NamedTuple of columns."""
    kind = type(coefficients[0])
    return kind(*(torch.tensor(each)[:, None] for each in zip(*coefficients, strict=True)))


class Direct:
    """Chains of a sampler that takes one gradient per step."""

    per_step = 1

    def __init__(self, sampler: Any, groups: Sequence[Group], theta: Tensor, draws: Draws) -> None:
        updates = [sampler.update(group) for group in groups]
        self.form, self.normals = updates[0].form, updates[0].normals
        self.coefficients = columns([update.coefficients for update in updates])
        self.variables = updates[0].begin(theta, groups[0])
        self.draws = draws

    def step(self, gradient_at: Gradient) -> None:
        """One step of all chains."""
        grad = gradient_at(self.variables.theta)
        eps = self.draws.normals(self.normals, grad)
        self.variables = self.form.apply((*self.variables, grad), eps, self.coefficients)

    @property
    def state(self) -> State:
        """θ and its guide."""
        return State(self.variables.theta, getattr(self.variables, "guide", None))


class Nested:
    """Chains of Entropy-SGD or Entropy-SGLD, with `INNER` gradients per step."""

    per_step = INNER

    def __init__(self, sampler: Any, groups: Sequence[Group], theta: Tensor, draws: Draws) -> None:
        inner = [(units.scales(group, lr="inner_lr"), group["averaging"]) for group in groups]
        self.inner = columns(
            [InnerCoefficients(s.lr, s.decay, s.coupling, s.noise, a) for s, a in inner]
        )
        outer = [units.scales(group) for group in groups]
        self.outer = columns([OuterCoefficients(s.coupling, s.noise) for s in outer])
        self.noisy = sampler.outer_noise
        self.theta, self.draws = theta, draws

    def step(self, gradient_at: Gradient) -> None:
        """The inner chains, then the outer step."""
        v = Inner(self.theta, self.theta)
        for _ in range(INNER):
            grad = gradient_at(v.theta)
            v = inner_chain(v, grad, self.theta, self.draws.normals(1, grad), self.inner)
        eps = self.draws.normals(1 if self.noisy else 0, v.theta)
        self.theta = outer_step(Outer(v.theta), self.theta, v.mean, eps, self.outer).theta

    @property
    def state(self) -> State:
        """θ."""
        return State(self.theta, None)


KINDS: dict[str, tuple[Any, Any]] = {
    "emcmc": (EntropyMCMC, Direct),
    "sgld": (SGLD, Direct),
    "entropy-sgd": (EntropySGD, Nested),
    "entropy-sgld": (EntropySGLD, Nested),
    "sgd": (SGLD, Direct),  # at T = 0
}


def arguments(
    method: str, numbers: Mapping[str, float], num_data: int, temperature: float
) -> dict[str, Any]:
    """Arguments of the sampler: `horizon` is ηN/lr, `width` ηN/(L·inner lr), `pull` lr/(ηN)."""
    given: dict[str, Any] = {
        "num_data": num_data,
        "prior_variance": numbers["prior_variance"],
        "temperature": 0.0 if method == "sgd" else temperature,
    }
    if KINDS[method][1] is Nested:
        inner_lr, steps = numbers["inner_lr"], numbers["width"] * INNER
        eta = units.eta_of_horizon(steps, inner_lr, num_data)
        lr = numbers["pull"] * units.lr_of_full_pull(eta, num_data)
        return given | {"lr": lr, "eta": eta, "inner_lr": inner_lr, "inner_steps": INNER}
    given["lr"] = numbers["lr"]
    if method == "emcmc":
        given["eta"] = units.eta_of_horizon(numbers["horizon"], numbers["lr"], num_data)
    return given


@torch.no_grad()
def run(
    method: str,
    settings: Sequence[Mapping[str, float]],
    train: Rows,
    course: Course,
    seeds: Sequence[int],
) -> Iterator[State]:
    """States of all chains from θ = 0, at the start and after every `course.every` gradients."""
    count, weights = train.inputs.shape
    draws = Draws(seeds, train, course.batch)
    sampler, chains = KINDS[method]
    given = [arguments(method, each, count, course.temperature) for each in settings]
    groups = [sampler.settings(**each) for each in given]
    theta = torch.zeros(len(seeds), len(settings), weights)
    moving = chains(sampler, groups, theta, draws)
    yield moving.state
    for _ in range(course.gradients // course.every):
        for _ in range(course.every // moving.per_step):
            moving.step(lambda at: gradient(at, draws.rows()))
        yield moving.state
