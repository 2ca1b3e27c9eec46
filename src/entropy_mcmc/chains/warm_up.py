r"""Warm-up: the preconditioner, the step size and the friction of BAOAB, adapted and then frozen.

In coordinates z = x/s, s the standard deviations of the draws so far, α is set by the largest
curvature h of the energy at the chains' states: with β = 2α/(1+μ), βh = 4·SAFETY (stable below 4;
on a Gaussian the variance has no bias at any of them). The friction is critical for the widest
direction that the draws show, of variance w: μ = e^{−2√(β/w)}. Mini-batch gradients, whose largest
variance in a direction is V, add at most the share αV/(2(1−μ)) to the variance of anything linear;
α is lowered until that is at most HEAT.

Windows double: the first are short, since they begin far from the posterior. Curvature is looked at
where the chains are then, later at spaced draws, too. With mini-batches a fixed random choice of
rows stands for all of them: where their curvature differs, the largest one is more often too large,
which is safe, and SAFETY leaves room for a factor of 6.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.chains.curvature import LAST, first_scale, largest, over_distances, spaced
from entropy_mcmc.chains.density_checks import at_a_bound
from entropy_mcmc.chains.descent import descended
from entropy_mcmc.chains.divergence import DivergedError
from entropy_mcmc.chains.gradient_noise import largest_variance
from entropy_mcmc.chains.log_density import LogDensity, Slopes
from entropy_mcmc.chains.propriety import check_confined
from entropy_mcmc.chains.sampling import run
from entropy_mcmc.errors import NonFiniteError

SAFETY = 0.15
HEAT = 0.05  # of mini-batches, as a share of each variance
DESCENTS = 10  # each with the scale of where the last one ended
WARM = 0.3  # the same during warm-up, which has to get to the posterior first
MOST_MOMENTUM = 0.995
EARLY_STATES = 8  # draws of a short window at which curvature is looked at, beside the last ones,
STATES = 16  # of a longer one,
AT_LAST = 64  # and of the one that sets the step of the draws
FIRST = 15  # iterations for the curvature at the starts, of which no direction is known
ROWS = 2**12  # for curvature, at least, where there are mini-batches
EARLY = 5  # windows of a fiftieth of the warm-up, to get near the posterior
FAR = 1.0  # β above which curvature is looked at over distances: on average h is at least 1
FALL = 4.0  # of such a β at a time
ESCAPED = (
    "look for NaN in the data, log(0) and 0/0; whether log_density has the right sign (it is minus "
    "a loss) and falls off in all directions, as a proper density does; and for a funnel, in which "
    "no step size is right: write its parameters as mean + sd·z with z standard normal"
)
NO_SLOPE = f"look for a square root of 0, or give a parameter a transform; {ESCAPED}"
SMALL = 500  # parameters up to which the widest direction is looked for


@dataclass(frozen=True)
class Tuning:
    """Settings of the chains, frozen after warm-up.

    Attributes:
        scale: Diagonal preconditioner: standard deviations of the unconstrained parameters.
        step_size: α of the full energy in scaled coordinates.
        momentum: μ.
        heat: Share that mini-batches add to the variance of a linear function of the unconstrained
            parameters, at most; 0 for full batches.
    """

    scale: Tensor
    step_size: float
    momentum: float
    heat: float = 0.0


@dataclass(frozen=True)
class Problem:
    """A log density with the size of its mini-batches (None: all rows) and the seed."""

    density: LogDensity
    batch_size: int | None
    seed: int

    def rows_looked_at(self) -> tuple[Tensor, ...] | None:
        """Rows from which curvature is computed: a random choice, None for all of them."""
        total = self.density.num_data
        if self.batch_size is None or (number := max(ROWS, self.batch_size)) >= total:
            return None
        generator = torch.Generator().manual_seed(self.seed % 2**63)
        chosen = torch.randperm(total, generator=generator)[:number]
        return tuple(part[chosen.to(part.device)] for part in self.density.data)

    def window(
        self, states: Tensor, tuning: Tuning, steps: int, number: int, **options: Any
    ) -> Tensor:
        """Unconstrained states (chain, draw, element) of `steps` steps from `states`."""
        density, scale = self.density, tuning.scale
        if not density.data:
            options["num_data"] = 1
        try:
            draws = run(
                density.mean_loss(scale),
                states / scale,
                sampler="sghmc",
                integrator="baoab",
                momentum=tuning.momentum,
                lr=tuning.step_size * density.num_data,
                data=density.data,
                batch_size=self.batch_size,
                steps=steps,
                seed=window_seed(self.seed, number),
                **options,
            )
        except DivergedError as error:
            last = states[error.chain] if error.last is None else error.last * scale
            remedy = _when(number) + (at_a_bound(density, last) or ESCAPED)
            raise DivergedError(error.chain, error.step, remedy) from None
        assert isinstance(draws.theta, Tensor)
        return draws.theta * scale


def _when(number: int) -> str:
    return f"this was in window {number} of the warm-up; " if number else "this was after warm-up; "


def window_seed(seed: int, number: int) -> int:
    """A seed for each window, so that none shares noise with another."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:7], "big")


def warm_up(
    problem: Problem,
    states: Tensor,
    steps: int,
    tell: Callable[[int], None],
    compile: bool | str = "auto",
) -> tuple[Tuning, Tensor]:
    """Settings for the draws, and the states from which they go on; `tell` counts steps.

    Settings are compiled in, and every window has its own: only a long one is worth compiling.
    """
    lengths = windows(steps)
    compile = "auto" if compile else False
    first = first_scale(problem.density, states)
    for _ in range(DESCENTS):
        nearer = descended(problem.density, states, first, problem.rows_looked_at())
        if torch.equal(nearer, states):
            break
        states, first = nearer, first_scale(problem.density, nearer)
    tuning, along = fit(problem, states, first, 1.0, math.inf)
    for number, length in enumerate(lengths):
        draws = problem.window(states, tuning, length, number + 1, compile=compile)
        states, settled = draws[:, -1].clone(), draws[:, length // 2 :]
        scale, widest, heat, some = tuning.scale, 1.0, math.inf, EARLY_STATES
        if number >= EARLY:
            scale, widest = fitted_scale(settled, tuning.scale)
            heat, some = (HEAT, AT_LAST) if number == len(lengths) - 1 else (WARM, STATES)
        looked_at = torch.cat([states, spaced(settled.flatten(0, 1), some)])
        along = along * scale / tuning.scale
        tuning, along = fit(problem, looked_at, scale, widest, heat, along)
        tell(length)
    check_confined(problem.density, looked_at, tuning.scale, first)
    return tuning, states


def windows(steps: int) -> list[int]:
    """Lengths that add up to `steps`: a few short ones, then each twice the one before.

    >>> windows(1000)
    [20, 20, 20, 20, 20, 60, 120, 240, 480]
    """
    early = max(1, steps // 50)
    left = max(steps - EARLY * early, 4)
    base = [left // 15, 2 * left // 15, 4 * left // 15]
    return [early] * EARLY + [max(1, b) for b in (*base, left - sum(base))]


def fitted_scale(draws: Tensor, last: Tensor) -> tuple[Tensor, float]:
    """Standard deviations of draws (chain, draw, element), and the widest scaled variance."""
    rows = draws.flatten(0, 1)
    count = len(rows)
    variance = rows.var(dim=0) if count > 1 else last.square()
    # Shrunk towards the last scale, as five draws of it would; few draws say little.
    variance = (count * variance + 5 * last.square()) / (count + 5)
    scale = variance.sqrt().clamp(last * 1e-3, last * 1e3)
    size = rows.shape[1]
    if size > SMALL or count < 10 * size:
        return scale, 1.0
    covariance = torch.cov((rows / scale).T).reshape(size, size).double()
    return scale, max(1.0, float(torch.linalg.eigvalsh(covariance)[-1]))


def fit(
    problem: Problem,
    states: Tensor,
    scale: Tensor,
    widest: float,
    most: float,
    along: Tensor | None = None,
) -> tuple[Tuning, Tensor]:
    """α and μ for a scale, with `most` heat of mini-batches, and the direction that bends most.

    `along` is that direction as found before, which saves gradients.
    """
    slopes = problem.density.slopes(scale, problem.rows_looked_at())
    size, along = largest(slopes, states / scale, along, LAST if along is not None else FIRST)
    if not math.isfinite(size):
        remedy = at_a_bound(problem.density, states) or NO_SLOPE
        raise NonFiniteError(
            f"the gradient of the log density became NaN or infinite near a state of the warm-up; "
            f"{remedy}"
        )
    beta = 4 * SAFETY / max(size, 1e-12)
    if beta > FAR:
        beta = within_reach(slopes, spaced(states, STATES) / scale, beta)
    variance = 0.0
    if problem.batch_size is not None and most < math.inf:
        some = spaced(states, 4) / scale
        variance = largest_variance(problem.density, some, scale, problem.batch_size, problem.seed)
    step, momentum, heat = step_of(beta, widest, variance)
    while heat > most:
        beta /= 1.5
        step, momentum, heat = step_of(beta, widest, variance)
    return Tuning(scale, step, momentum, heat), along


def within_reach(slopes: Slopes, states: Tensor, beta: float) -> float:
    """β, lowered until 4·SAFETY/β is the largest curvature over distances of one to ten √β.

    Where the energy has corners (|x|) or flat parts, its curvature at a point says nothing.
    """
    wanted = 4 * SAFETY
    while beta * (size := over_distances(slopes, states, math.sqrt(beta))) > 1.1 * wanted:
        # Where it grows as a power, most of it is of a distance that a smaller β does not reach.
        beta = max(min(wanted / size, beta / 1.1), beta / FALL)
    return beta


def step_of(beta: float, widest: float, variance: float) -> tuple[float, float, float]:
    """α, μ and the heat αV/(2(1−μ)) of a squared time step β."""
    momentum = min(MOST_MOMENTUM, math.exp(-2 * math.sqrt(beta / widest)))
    step = beta * (1 + momentum) / 2
    return step, momentum, step * variance / (2 * (1 - momentum))
