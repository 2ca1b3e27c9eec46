"""Targets, each as a log density in torch and in jax, with what is known of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

PRIOR_VARIANCE = 0.01  # of the logistic regression's weights
NETWORK_PRIOR = 0.1  # variance of the network's weights
HIDDEN = 4
NOISE = 0.8  # standard deviation of the targets, which are scaled to 1: what the table's rows have
NETWORK_ROWS = 400
CLOSE = 0.6  # two modes: of the paper's distance from the origin


@dataclass(frozen=True)
class Target:
    """A log density of a vector; with data, `loglik(theta, *rows)` is added to it.

    Attributes:
        name: In the tables.
        dim: Numbers of θ.
        prior: torch, θ → log prior (without data: the log density).
        loglik: torch, (θ, *rows) → sum of the rows' log likelihoods; None without data.
        data: Tensors of equal length.
        batch: Rows of a mini-batch; None takes all.
        variances: Of the observed numbers, where known; else a long NUTS run gives them.
        observe: θ (…, dim) → numbers whose ESS counts, in NumPy.
        start: Where a NUTS run starts, zeros if None.
        chains: Chains that run at once.
        steps: Gradients of each chain: many times its slowest relaxation, since every start is
            an effective sample that cost nothing. Many chains cost little more than one.
        exact: Number → exact draws (number, dim), where there are any.
        tilt: Gradient of the log likelihood at the centre of control variates.
        plain: `mean_loss` as a function of its arguments and of plain numbers alone, with the data
            that it takes: what compiles best.
        reference: About so many gradients has each of the four NUTS chains that give variances.
    """

    name: str
    dim: int
    prior: Callable[[torch.Tensor], torch.Tensor]
    loglik: Callable[..., torch.Tensor] | None = None
    data: tuple[torch.Tensor, ...] = ()
    batch: int | None = None
    variances: np.ndarray[Any, Any] | None = None
    observe: Callable[[Any], Any] = lambda theta: theta
    start: torch.Tensor | None = None
    chains: int = 16
    steps: int = 3000
    exact: Callable[[int], torch.Tensor] | None = None
    tilt: torch.Tensor | None = None
    plain: Callable[..., torch.Tensor] | None = None
    reference: int = 40_000

    @property
    def num_data(self) -> int:
        """N, or 1 without data."""
        return len(self.data[0]) if self.data else 1

    @property
    def noisy(self) -> bool:
        """Whether gradients have the noise of mini-batches, not reduced by control variates."""
        return self.batch is not None and self.tilt is None

    def log_density(self, theta: torch.Tensor) -> torch.Tensor:
        """From all data."""
        total = self.prior(theta)
        return total if self.loglik is None else total + self.loglik(theta, *self.data)

    def mean_loss(self, theta: torch.Tensor, *rows: torch.Tensor) -> torch.Tensor:
        """Energy over N, from these rows: what `chains.run` takes."""
        if self.loglik is None:
            return -self.prior(theta)
        share = self.num_data / len(rows[0])
        return -(self.prior(theta) + share * self.loglik(theta, *rows)) / self.num_data

    def first(self) -> torch.Tensor:
        """Where a NUTS run starts."""
        return torch.zeros(self.dim) if self.start is None else self.start


def gaussian(condition: float, dim: int = 10) -> Target:
    """Variances from 1/condition to 1, evenly spaced in the logarithm."""
    variances = torch.logspace(-math.log10(condition), 0, dim, dtype=torch.float64).float()
    return Target(
        f"Gaussian, condition {condition:g}",
        dim,
        lambda t: -(t.square() / variances).sum() / 2,
        variances=variances.numpy(),
        chains=64,
        steps=4000,
        exact=lambda number: _normal(number, dim) * variances.sqrt(),
    )


def _normal(number: int, dim: int) -> torch.Tensor:
    return torch.randn(number, dim, generator=torch.Generator().manual_seed(3))


def two_modes() -> Target:
    """Equal depth, variances 0.5 and 1; variances by quadrature."""
    means = CLOSE * torch.tensor([[-2.0, -1.0], [2.0, 1.0]])
    widths = torch.tensor([0.5, 1.0])

    def log_density(t: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(-(t - means).square().sum(1) / (2 * widths), dim=0)

    axis = torch.linspace(-8, 8, 401)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    weight = torch.func.vmap(log_density)(grid).softmax(0)[:, None]
    mean = (weight * grid).sum(0)
    variances = (weight * (grid - mean).square()).sum(0)

    def exact(number: int) -> torch.Tensor:
        flat = torch.arange(number) % 3 > 0  # two of three: the mass goes with the width
        return means[flat.long()] + widths[flat.long(), None].sqrt() * _normal(number, 2)

    return Target(
        "two modes",
        2,
        log_density,
        variances=variances.numpy(),
        chains=128,
        steps=6000,
        exact=exact,
    )


def logistic(rows: int, batch: int | None, control: bool = False) -> Target:
    """MNIST, 7 against 9: 784 weights, no bias, prior N(0, 0.01·I).

    With control variates a third column holds r, the slopes of the rows' log likelihoods in x·θ at
    the mode: gradients are those of a batch minus r·x there, plus the sum of r·x over all rows.
    """
    from entropy_mcmc.data import load

    data = load("mnist")
    keep = (data.targets == 7) | (data.targets == 9)
    x = data.inputs[keep][:rows].flatten(1).float() / 255
    y = (data.targets[keep][:rows] == 9).float() * 2 - 1
    r = row_slopes(x, y) if control else torch.zeros(0)
    tilt = x.T @ r if control else None

    def prior(t: torch.Tensor) -> torch.Tensor:
        linear = 0.0 if tilt is None else t @ tilt
        return linear - t.square().sum() / (2 * PRIOR_VARIANCE)

    def loglik(t: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *r: torch.Tensor) -> torch.Tensor:
        z = product(x, t)
        known = (r[0] * z).sum() if r else 0.0
        return -F.softplus(-y * z).sum() - known

    kind = f"batch {batch}" if batch else "full batch"
    kind += ", control variates" if control else ""
    return Target(
        f"logistic regression, MNIST 7 v 9, {len(x):,} rows, {kind}",
        784,
        prior,
        loglik,
        (x, y, r) if control else (x, y),
        batch,
        steps=2000 if batch is None else 3000,
        tilt=tilt,
        plain=None if control else plain_logistic(len(x)),
    )


def plain_logistic(rows: int) -> Callable[..., torch.Tensor]:
    """The mean loss of the logistic regression."""
    decay = 1 / (2 * PRIOR_VARIANCE * rows)

    def mean_loss(t: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.softplus(-y * F.linear(t[None], x)[0]).mean() + decay * t.square().sum()

    return mean_loss


def product(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """x·t, in a form whose gradient for several t is s·x, not xᵀ·sᵀ: ten times faster."""
    return F.linear(t[None], x)[0]


def row_slopes(x: torch.Tensor, y: torch.Tensor, newton: int = 12) -> torch.Tensor:
    """Slopes y·σ(−y·x·θ) of the rows' log likelihoods at the mode, found by Newton's method."""
    x, y = x.double(), y.double()
    t = torch.zeros(x.shape[1], dtype=torch.float64)
    for _ in range(newton):
        slopes = y * torch.sigmoid(-y * (x @ t))
        weight = slopes.abs() * (1 - slopes.abs())
        hessian = (x.T * weight) @ x + torch.eye(len(t)) / PRIOR_VARIANCE
        t = t + torch.linalg.solve(hessian, x.T @ slopes - t / PRIOR_VARIANCE)
    return (y * torch.sigmoid(-y * (x @ t))).float()


def network() -> Target:
    """One hidden layer of 4 tanh units on the table of red wines; 20 predictions count."""
    from entropy_mcmc.data import load

    data = load("uci-wine-red")
    x, y = data.inputs[:NETWORK_ROWS].float(), data.targets[:NETWORK_ROWS].float().flatten()
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    inputs = x.shape[1]
    cut = [inputs * HIDDEN, HIDDEN, HIDDEN, 1]

    def predict(t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        w, b, v, c = torch.split(t, cut)
        return torch.tanh(x @ w.reshape(inputs, HIDDEN) + b) @ v + c

    def observe(draws: Any) -> Any:
        flat = torch.as_tensor(np.asarray(draws)).reshape(-1, sum(cut))
        shown = torch.func.vmap(lambda t: predict(t, x[:20]))(flat)
        return shown.reshape(*draws.shape[:-1], 20).numpy()

    generator = torch.Generator().manual_seed(0)
    return Target(
        f"Bayesian network, red wines, {len(x)} rows",
        sum(cut),
        lambda t: -t.square().sum() / (2 * NETWORK_PRIOR),
        lambda t, x, y: -((predict(t, x) - y) / NOISE).square().sum() / 2,
        (x, y),
        observe=observe,
        start=0.3 * torch.randn(sum(cut), generator=generator),
        steps=8000,
        reference=80_000,
    )


def in_jax(target: Target) -> tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]:
    """(log prior, log likelihood or None, data) of the same target in jax."""
    import jax
    import jax.numpy as jnp

    data = tuple(jnp.asarray(part.numpy()) for part in target.data)
    none: Callable[..., Any] = lambda theta, *rows: 0.0  # noqa: E731
    if target.name.startswith("Gaussian"):
        variances = jnp.asarray(target.variances)
        return lambda t: -jnp.sum(t**2 / variances) / 2, none, data
    if target.name == "two modes":
        means, widths = CLOSE * jnp.array([[-2.0, -1.0], [2.0, 1.0]]), jnp.array([0.5, 1.0])
        return (
            lambda t: jax.nn.logsumexp(-jnp.sum((t - means) ** 2, 1) / (2 * widths)),
            none,
            data,
        )
    if target.name.startswith("logistic"):
        tilt = jnp.zeros(target.dim) if target.tilt is None else jnp.asarray(target.tilt.numpy())

        def loglik(t: Any, x: Any, y: Any, *r: Any) -> Any:
            z = x @ t
            known = jnp.sum(r[0] * z) if r else 0.0
            return -jnp.sum(jax.nn.softplus(-y * z)) - known

        return lambda t: t @ tilt - jnp.sum(t**2) / (2 * PRIOR_VARIANCE), loglik, data
    inputs = target.data[0].shape[1]

    def predict(t: Any, x: Any) -> Any:
        w, b, v, c = jnp.split(t, np.cumsum([inputs * HIDDEN, HIDDEN, HIDDEN]).tolist())
        return jnp.tanh(x @ w.reshape(inputs, HIDDEN) + b) @ v + c

    return (
        lambda t: -jnp.sum(t**2) / (2 * NETWORK_PRIOR),
        lambda t, x, y: -jnp.sum(((predict(t, x) - y) / NOISE) ** 2) / 2,
        data,
    )
