r"""Warm-up: the preconditioner, the step size and the friction of BAOAB, adapted and then frozen.

In coordinates z = x/s, s the standard deviations of the draws so far, α is set by the largest
curvature h of the energy at the chains' states: with β = 2α/(1+μ), βh = 4·SAFETY (stable below 4;
on a Gaussian the variance has no bias at any of them). The friction is critical for the widest
direction that the draws show, of variance w: μ = e^{−2√(β/w)}. A mini-batch gradient of variance V
adds the share αV/(2(1−μ)) to variances; α is lowered until that is at most HEAT.

Windows double: the first are short, since they begin far from the posterior.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from entropy_mcmc.chains import log_density as density_of
from entropy_mcmc.chains.divergence import DivergedError
from entropy_mcmc.chains.log_density import LogDensity
from entropy_mcmc.chains.propriety import check_confined
from entropy_mcmc.chains.sampling import run
from entropy_mcmc.errors import NonFiniteError

SAFETY = 0.15
HEAT = 0.05  # of mini-batches, as a share of each variance
WARM = 0.3  # the same during warm-up, which has to get to the posterior first
MOST_MOMENTUM = 0.995
STATES = 64  # at which curvature is looked at
BATCHES = 32  # for the variance of mini-batch gradients
EARLY = 5  # windows of a fiftieth of the warm-up, to get near the posterior
FAR = 1.0  # β above which curvature is looked at over distances: on average h is at least 1
ESCAPED = (
    "look for NaN in the data, log(0) and 0/0; whether log_density has the right sign (it is minus "
    "a loss) and falls off in all directions, as a proper density does; and for a funnel, in which "
    "no step size is right: write its parameters as mean + sd·z with z standard normal"
)
SMALL = 500  # parameters up to which the widest direction is looked for


@dataclass(frozen=True)
class Tuning:
    """Settings of the chains, frozen after warm-up.

    Attributes:
        scale: Diagonal preconditioner: standard deviations of the unconstrained parameters.
        step_size: α of the full energy in scaled coordinates.
        momentum: μ.
        heat: Share that mini-batches add to variances, 0 for full batches.
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
            raise DivergedError(error.chain, error.step, _when(number) + ESCAPED) from None
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
    tuning = fit(problem, states, first, 1.0, math.inf)
    for number, length in enumerate(lengths):
        draws = problem.window(states, tuning, length, number + 1, compile=compile)
        states = draws[:, -1].clone()
        if number >= EARLY:
            settled = draws[:, length // 2 :]
            scale, widest = fitted_scale(settled, tuning.scale)
        else:
            scale, widest = tuning.scale, 1.0
        looked_at = torch.cat([states, spaced(draws[:, length // 2 :].flatten(0, 1), STATES)])
        heat = HEAT if number == len(lengths) - 1 else math.inf if number < EARLY else WARM
        tuning = fit(problem, looked_at, scale, widest, heat)
        tell(length)
    check_confined(problem.density, looked_at, tuning.scale, first)
    return tuning, states


def first_scale(density: LogDensity, states: Tensor) -> Tensor:
    """1/√curvature of each coordinate at the starts; 1 where it is not positive, and not far more.

    A flat coordinate at the start may be a narrow one elsewhere: at most ten times 1 + |x|.
    """
    diagonal = density_of.diagonal(density.energy(torch.ones_like(states[0])), states)
    bent = (diagonal > 0) & diagonal.isfinite()
    scale = torch.where(bent, diagonal.clamp_min(1e-30).rsqrt(), torch.ones_like(diagonal))
    return scale.minimum(10 * (1 + states.abs().amax(dim=0)))


def windows(steps: int) -> list[int]:
    """Lengths that add up to `steps`: a few short ones, then each twice the one before.

    >>> windows(1000)
    [20, 20, 20, 20, 20, 60, 120, 240, 480]
    """
    early = max(1, steps // 50)
    left = max(steps - EARLY * early, 4)
    base = [left // 15, 2 * left // 15, 4 * left // 15]
    return [early] * EARLY + [max(1, b) for b in (*base, left - sum(base))]


def spaced(rows: Tensor, most: int) -> Tensor:
    """Evenly spaced rows, at most so many."""
    places = torch.linspace(0, len(rows) - 1, min(most, len(rows))).long()
    return rows[places]


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


def fit(problem: Problem, states: Tensor, scale: Tensor, widest: float, most: float) -> Tuning:
    """α and μ for a scale, from the curvature at states, and `most` heat of mini-batches."""
    energy = problem.density.energy(scale)
    sizes = density_of.curvature(energy, states / scale)
    if not bool(sizes.isfinite().all()):
        raise NonFiniteError(
            "the gradient of the log density is not finite near a state of the warm-up; look for a "
            f"square root of 0, or give a parameter a transform; {ESCAPED}"
        )
    beta = 4 * SAFETY / max(float(sizes.max()), 1e-12)
    if beta > FAR:
        beta = within_reach(energy, states / scale, beta)
    variance = 0.0
    if problem.batch_size is not None:
        variance = minibatch_variance(problem, states / scale, scale)
    step, momentum, heat = step_of(beta, widest, variance)
    while heat > most:
        beta /= 1.5
        step, momentum, heat = step_of(beta, widest, variance)
    return Tuning(scale, step, momentum, heat)


def within_reach(energy: Callable[[Tensor], Tensor], states: Tensor, beta: float) -> float:
    """β, lowered until 4·SAFETY/β is the largest curvature over distances of one to ten √β.

    Where the energy has corners (|x|) or flat parts, its curvature at a point says nothing.
    """
    wanted = 4 * SAFETY
    while beta * (size := _secant(energy, states, math.sqrt(beta))) > 1.1 * wanted:
        beta = min(wanted / size, beta / 1.1)
    return beta


def _secant(energy: Callable[[Tensor], Tensor], states: Tensor, step: float) -> float:
    """Largest difference of slopes at distances of 1, 3 and 10 steps, over the distance."""
    v = density_of.signs(states)
    bent = torch.cat(
        [density_of.hessian_products(energy, states, v, step=k * step) for k in (1, 3, 10)]
    )
    sizes = bent.norm(dim=1) / math.sqrt(states.shape[1])
    return float(sizes.nan_to_num(nan=4 / step**2, posinf=4 / step**2).max())


def step_of(beta: float, widest: float, variance: float) -> tuple[float, float, float]:
    """α, μ and the heat αV/(2(1−μ)) of a squared time step β."""
    momentum = min(MOST_MOMENTUM, math.exp(-2 * math.sqrt(beta / widest)))
    step = beta * (1 + momentum) / 2
    return step, momentum, step * variance / (2 * (1 - momentum))


def minibatch_variance(problem: Problem, states: Tensor, scale: Tensor) -> float:
    """V: the largest variance of a coordinate of N·ĝ over mini-batches, mean over states."""
    density = problem.density
    assert problem.batch_size is not None
    loss, generator = density.mean_loss(scale), torch.Generator().manual_seed(problem.seed % 2**31)
    size = (BATCHES, problem.batch_size)
    rows = torch.randint(density.num_data, size, generator=generator)
    some = spaced(states, 4)

    def on_rows(state: Tensor, chosen: Tensor) -> Tensor:
        return loss(state, *(part[chosen] for part in density.data))

    over_batches = vmap(grad(on_rows), in_dims=(None, 0))
    slopes = vmap(over_batches, in_dims=(0, None))(some, rows) * density.num_data
    return float(slopes.var(dim=1).mean(dim=0).max())
