r"""Chains of small regressions: every split, setting and chain of a table as one stack of networks.

The loss is half the squared error; its heat (temperature) is the noise variance s, so that at T = 1
the chains sample the posterior of networks with Gaussian noise of variance s, and the curvature
of the loss does not grow as s shrinks: no gradient is clipped. s is learned while the chains run:
:math:`s = (w\cdot guess + N\cdot mse)/(w + N)` from the errors on training batches and a guess
worth w rows. The prior is N(0, v) of every weight, also for optimizers (weight decay s/(Nv)).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.chains.stack import move
from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.samplers import SGHMC, SGLD, EntropyMCMC, Sampler
from entropy_mcmc.sklearn.networks import Architecture, backward, forward
from entropy_mcmc_reproduction.regression_data import Splits

FORGET = 0.02  # weight of the newest batch in the running mean squared error
FIRST_GUESS = 0.1  # of the noise variance of standardised targets
GUESS_ROWS = 50.0  # rows that the guess is worth
LEAST_NOISE = 1e-6
LOOK_EVERY = 10  # steps between two looks at the held-out rows
WARM_UP = 0.05  # part of the run in which lr rises: large first steps switch ReLUs off for good
LEAST_LR = 0.05  # last lr of a sampler as a part of its first: one that stands still adds nothing


@dataclass(frozen=True)
class Kind:
    """How a method uses its share of the gradients.

    Attributes:
        label: Name in tables.
        sampler: Its rule while noise is on; None is SGD to the end.
        chains: Networks that run side by side, each with its share of the steps.
        momentum: Of the sampler, and of the SGD before it.
    """

    label: str
    sampler: type[Sampler] | None
    chains: int
    momentum: float


MOMENTUM = 0.98
KINDS = {
    "sgd": Kind("SGD", None, 1, MOMENTUM),
    "ensemble": Kind("Deep ensemble", None, 5, MOMENTUM),
    "sgld": Kind("SGLD", SGLD, 4, 0.0),
    "sghmc": Kind("SGHMC", SGHMC, 4, MOMENTUM),
    "emcmc": Kind("EMCMC", EntropyMCMC, 4, MOMENTUM),
}


@dataclass(frozen=True)
class Course:
    """Length and shape of the chains of a run.

    Attributes:
        steps: Of each chain.
        batch: Rows of a mini-batch.
        hidden: Units of the hidden layer.
        noise_from: Part of the run after which noise is on.
        keep_from: Part after which networks are kept.
        samples: Networks kept of each chain; optimizers keep the last one.
    """

    steps: int
    batch: int
    hidden: int
    noise_from: float
    keep_from: float
    samples: int

    def lr_factor(self, step: int, floor: float) -> float:
        """Lr at a step as a part of its peak: up along a line, then down a cosine to `floor`."""
        rise = WARM_UP * self.steps
        if step < rise:
            return (step + 1) / (rise + 1)
        return floor + (1 - floor) / 2 * (1 + math.cos(math.pi * step / self.steps))

    def is_noisy(self, step: int) -> bool:
        """Whether noise is on."""
        return step >= self.noise_from * self.steps

    def is_due(self, step: int) -> bool:
        """Whether the network after this step is kept: evenly spaced, the last one always.

        >>> [s for s in range(10) if Course(10, 1, 1, 0.5, 0.5, 2).is_due(s)]
        [7, 9]
        """
        first = math.ceil(self.keep_from * self.steps)
        after, room = step + 1 - first, self.steps - first
        return after > 0 and after * self.samples // room > (after - 1) * self.samples // room


def run(
    method: str,
    numbers: Mapping[str, Tensor],
    splits: Splits,
    course: Course,
    *,
    chains: int,
    seed: int,
    guess: Tensor | None = None,
) -> Tensor:
    """Run `chains` networks for each split and return their outputs on its judged rows.

    The outputs are (networks, runs, rows).

    `numbers` holds a value for each split: lr, prior_variance, EMCMC's horizon (ηN/lr) and SGLD's
    boost. `guess` is the noise variance to begin with; without it, the judged rows tell while the
    chains run.
    """
    stack = Networks(KINDS[method], numbers, splits, course, chains, seed)
    noise = Noise(len(splits), chains, splits.rows, guess)
    kept = []
    for step, batch in zip(range(course.steps), _batches(stack, splits, course), strict=False):
        noise.learn(stack.gradients(*batch))
        stack.move(step, noise.heats)
        if guess is None and step % LOOK_EVERY == 0:
            noise.look(stack.judged_errors())
        if stack.keeps(step):
            kept.append(stack.judged())
    means = torch.cat(kept)
    if not bool(torch.isfinite(means).any(dim=0).all(dim=1).any()):
        raise NonFiniteError(f"every network of {method} diverged; search over smaller lr")
    return means


class Noise:
    """Noise variance of each split, shared by its chains."""

    def __init__(self, splits: int, chains: int, rows: int, guess: Tensor | None) -> None:
        self._chains, self._rows = chains, rows
        self._guess = torch.full((splits,), FIRST_GUESS) if guess is None else guess
        self._error, self._held, self._batches, self._looks = self._guess, self._guess, 0, 0
        self.heats = self._spread(self._guess)

    def learn(self, squares: Tensor) -> None:
        """Take in mean squared errors (networks,) of a batch."""
        self._batches += 1
        newest = max(FORGET, 1 / self._batches)
        error = squares.view(-1, self._chains).mean(1)
        self._error = (1 - newest) * self._error + newest * error
        share = self._rows / (GUESS_ROWS + self._rows)
        self.heats = self._spread((1 - share) * self._guess + share * self._error)

    def look(self, squares: Tensor) -> None:
        """Take in mean squared errors (networks,) on held-out rows: they are the guess."""
        self._looks += 1
        newest = max(FORGET * LOOK_EVERY / 2, 1 / self._looks)
        error = squares.view(-1, self._chains).mean(1)
        self._guess = (1 - newest) * self._guess + newest * error

    def _spread(self, each: Tensor) -> Tensor:
        return each.clamp(min=LEAST_NOISE, max=2.0).repeat_interleave(self._chains)


class Networks:
    """θ of all networks as rows, moved by the library's rules with coefficients of their own."""

    def __init__(
        self,
        kind: Kind,
        numbers: Mapping[str, Tensor],
        splits: Splits,
        course: Course,
        chains: int,
        seed: int,
    ) -> None:
        self.kind, self.splits, self.course = kind, splits, course
        self.owner = torch.arange(len(splits)).repeat_interleave(chains)
        self.generator = torch.Generator().manual_seed(seed)
        self.form = Architecture((splits.inputs.shape[2], course.hidden, 1), "relu")
        own = {name: values.repeat_interleave(chains) for name, values in numbers.items()}
        self._lr, self._horizon = own["lr"], own.get("horizon")
        # SGLD's lr over that of the SGD before it, whose momentum takes steps 1/(1−μ) as long.
        self._boost = own.get("boost", 1.0)
        self._decay = 1 / (splits.rows * own["prior_variance"])
        self.flat = self.form.draw(torch.ones(len(self.owner)), self.generator)
        self._grad = torch.empty_like(self.flat)
        self._layers = self.form.layers(self.flat)
        self._judged = splits.judged_inputs[self.owner]
        self._floor = 0.0 if kind.sampler is None else LEAST_LR
        self._rule: Rule = self._begin(SGHMC, MOMENTUM)

    def _begin(self, sampler: type[Sampler], momentum: float) -> Rule:
        """The rule from its first step on."""
        settings: dict[str, Any] = {"lr": 1.0, "num_data": self.splits.rows, "temperature": 1.0}
        if sampler is not SGLD:
            settings["momentum"] = momentum
        if sampler is EntropyMCMC:
            settings["eta"] = 1.0
        group = sampler.settings(**settings, seed=0)
        return Rule(sampler, group, sampler.update(group).begin(self.flat, group))

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Write the gradients of a batch; returns the mean squared error of each network."""
        outputs, trace = forward(self.form, self._layers, x)
        errors = outputs - y[:, None]
        backward(
            self.form, self._layers, x, trace, errors / x.shape[1], self.form.layers(self._grad)
        )
        return errors.square().mean(dim=(1, 2))

    def move(self, step: int, heats: Tensor) -> None:
        """One step of all networks; a sampler's rule takes over from SGD's when noise begins."""
        noisy = self.kind.sampler is not None and self.course.is_noisy(step)
        if noisy and self._rule.sampler is not self.kind.sampler:
            self._rule = self._take_over()
        factor = self.course.lr_factor(step, self._floor)
        self._rule.group["lr"], self._rule.group["noise"] = factor, noisy
        update = self._rule.sampler.update(self._rule.group)
        moved = move(
            update,
            self._rule.variables,
            self._grad,
            self._normals(update.normals),
            **self._coefficients(factor, heats, noisy),
        )
        self.flat.copy_(moved.theta)
        self._rule.variables = moved._replace(theta=self.flat)
        self._rule.group["step"] += 1
        if "last_lr" in self._rule.group:
            self._rule.group["last_lr"] = factor

    def _take_over(self) -> Rule:
        assert self.kind.sampler is not None
        rule = self._begin(self.kind.sampler, self.kind.momentum)
        if hasattr(rule.variables, "velocity"):
            rule.variables = rule.variables._replace(velocity=self._rule.variables.velocity)
            rule.group["last_lr"] = self._rule.group["last_lr"]
        return rule

    def _coefficients(self, factor: float, heats: Tensor, noisy: bool) -> dict[str, Tensor]:
        """Of each network: lr, lr·λ at the heat, √(2·lr·s(1−μ)/N), lr/(ηN)."""
        lr = factor * self._lr
        if self._rule.sampler is SGLD:
            lr = lr * self._boost
        own = {"lr": lr, "decay": lr * heats * self._decay}
        if noisy:
            own["noise"] = (2 * lr * heats * (1 - self.kind.momentum) / self.splits.rows).sqrt()
        if self._rule.sampler is EntropyMCMC:
            assert self._horizon is not None
            own["coupling"] = factor / self._horizon
        return {name: values[:, None] for name, values in own.items()}

    def _normals(self, count: int) -> tuple[Tensor, Tensor] | None:
        if not count:
            return None
        first = torch.randn(self.flat.shape, generator=self.generator)
        if count == 1:
            return first, first
        return first, torch.randn(self.flat.shape, generator=self.generator)

    def keeps(self, step: int) -> bool:
        """Whether the networks after this step are kept."""
        last = step == self.course.steps - 1
        return last if self.kind.sampler is None else self.course.is_due(step)

    def judged(self) -> Tensor:
        """Outputs on the judged rows: (chains, splits, rows)."""
        outputs = forward(self.form, self._layers, self._judged)[0].squeeze(1)
        return outputs.view(len(self.splits), -1, outputs.shape[1]).transpose(0, 1).contiguous()

    def judged_errors(self) -> Tensor:
        """Mean squared error of each network on the first judged rows of its split."""
        part = self._judged[:, :MOST_LOOKED]
        outputs = forward(self.form, self._layers, part)[0].squeeze(1)
        targets = self.splits.judged_targets[self.owner, :MOST_LOOKED]
        return (outputs - targets).square().mean(1)


MOST_LOOKED = 200


@dataclass
class Rule:
    """A sampler's rule on the way: its group and its variables."""

    sampler: type[Sampler]
    group: dict[str, Any]
    variables: Any


def _batches(stack: Networks, splits: Splits, course: Course) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of each network for each step, every row once in a pass."""
    rows, size = splits.rows, min(course.batch, splits.rows)
    owner = stack.owner[:, None]
    while True:
        order = torch.rand(len(owner), rows, generator=stack.generator).argsort(dim=1)
        for start in range(0, rows - size + 1, size):
            at = owner, order[:, start : start + size]
            yield splits.inputs[at], splits.targets[at]
