"""Base of both estimators: parameters, defaults that follow the data, and fitting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from entropy_mcmc.errors import (
    ConfigError,
    NonFiniteError,
    check_choice,
    check_count,
    check_fraction,
    check_not_negative,
    check_positive,
)
from entropy_mcmc.sklearn.likelihood import Likelihood
from entropy_mcmc.sklearn.mlp import ACTIVATIONS, forward
from entropy_mcmc.sklearn.plan import Network, Plan
from entropy_mcmc.sklearn.sampling import run

Doubles = npt.NDArray[np.float64]
Result = TypeVar("Result")
LikelihoodMaker = Callable[[], Likelihood]

ATTEMPTS = 4  # times that a diverged run starts again, each at a third of the lr
# Rows above which mini-batches, not the posterior, heat the chains until the lr is small: their
# heat is about lr·rows/(2·batch) times that of the posterior.
MANY_ROWS = 5000
UNDECIDED = 1.0  # prior variance of a plan until the rows have chosen one
CHUNK = 2**22  # hidden values computed at once in a prediction: about 32 MB


class TabularEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the two estimators; see their docstrings for the parameters."""

    networks: ClassVar[tuple[Network, ...]]
    """What "auto" stands for; where there are several, the rows of small data choose."""

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | str = "auto",
        *,
        activation: str = "auto",
        n_chains: int = 4,
        n_samples: int = 16,
        n_steps: int | str = "auto",
        batch_size: int = 200,
        lr: float = 0.3,
        momentum: float = 0.99,
        guide_horizon: float = 50.0,
        temperature: float = 1.0,
        prior_variance: float | str = "auto",
        burn_in: float | str = "auto",
        roles: str = "theta",
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.n_chains = n_chains
        self.n_samples = n_samples
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.lr = lr
        self.momentum = momentum
        self.guide_horizon = guide_horizon
        self.temperature = temperature
        self.prior_variance = prior_variance
        self.burn_in = burn_in
        self.roles = roles
        self.random_state = random_state

    def _sample(self, x: Doubles, targets: Tensor, outputs: int) -> None:
        """Standardise the inputs, run the chains and keep what a prediction needs."""
        self.x_mean_, self.x_scale_ = moments(x)
        plan = self._plan(x.shape, outputs)
        inputs = torch.from_numpy(((x - self.x_mean_) / self.x_scale_).astype(np.float32))
        plan, likelihood = self._choose(plan, inputs, targets)
        draws, self.lr_ = run_until_finite(plan, lambda p: run(p, inputs, targets, likelihood()))
        self.hidden_layer_sizes_ = plan.sizes[1:-1]
        self.activation_ = plan.activation
        self.prior_variance_ = plan.prior_variance
        self.params_ = draws.params
        self.heats_ = draws.heats
        self.n_steps_ = plan.steps

    def _choose(self, plan: Plan, x: Tensor, targets: Tensor) -> tuple[Plan, LikelihoodMaker]:
        """The plan with what was left to the data, and the likelihood of a run."""
        raise NotImplementedError

    def _networks(self) -> list[Network]:
        """The networks that the parameters allow, each once."""
        check_choice("activation", self.activation, ("auto", *ACTIVATIONS))
        networks: list[Network] = []
        for hidden, activation in self.networks:
            sizes = hidden if self._sizes_are_automatic() else self.hidden_layer_sizes
            network = (
                tuple(check_count("hidden_layer_sizes", h, remedy='or pass "auto"') for h in sizes),
                activation if self.activation == "auto" else self.activation,
            )
            networks += [] if network in networks else [network]
        return networks

    def _sizes_are_automatic(self) -> bool:
        return isinstance(self.hidden_layer_sizes, str) and self.hidden_layer_sizes == "auto"

    def _fixed_prior(self) -> float:
        if self.prior_variance == "auto":
            return UNDECIDED
        return check_positive("prior_variance", self.prior_variance, remedy='or pass "auto"')

    def _fixed_burn_in(self, rows: int) -> float:
        if self.burn_in == "auto":
            return 0.8 if rows > MANY_ROWS else 0.5
        return check_fraction("burn_in", self.burn_in)

    def _plan(self, shape: tuple[int, ...], outputs: int) -> Plan:
        rows, features = shape
        hidden, activation = self._networks()[0]
        check_choice("roles", self.roles, ("theta", "guide", "both"))
        steps = automatic_steps(rows) if self.n_steps == "auto" else self.n_steps
        plan = Plan(
            sizes=(features, *hidden, outputs),
            activation=activation,
            chains=check_count("n_chains", self.n_chains),
            steps=check_count("n_steps", steps, remedy='or pass n_steps="auto"'),
            samples=check_count("n_samples", self.n_samples),
            batch=check_count("batch_size", self.batch_size),
            lr=check_positive("lr", self.lr),
            momentum=check_fraction("momentum", self.momentum),
            horizon=check_positive("guide_horizon", self.guide_horizon),
            temperature=check_not_negative("temperature", self.temperature),
            prior_variance=self._fixed_prior(),
            burn_in=self._fixed_burn_in(rows),
            roles=self.roles,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            least_lr=0.01 if rows > MANY_ROWS else 0.05,
        )
        room = plan.steps - math.ceil(plan.burn_in * plan.steps)
        if plan.samples > room:
            raise ConfigError(
                f"n_samples must be at most the {room} steps after burn-in, got n_samples="
                f"{plan.samples}; use fewer samples, more n_steps or a smaller burn_in"
            )
        return plan

    def _outputs(self, x: Any) -> Iterator[Tensor]:
        """Outputs (networks, rows, out) in float64, for as many rows at a time as memory likes."""
        check_is_fitted(self)
        x = validate_data(self, x, dtype=np.float64, order="C", reset=False)
        inputs = torch.from_numpy((x - self.x_mean_) / self.x_scale_)
        params = [torch.from_numpy(p).double() for p in self.params_]
        widest = max(p.shape[0] * max(p.shape[1:]) for p in params)
        with torch.no_grad():
            for rows in torch.split(inputs, max(1, CHUNK // widest)):
                yield forward(params, rows, self.activation_)


def automatic_steps(rows: int) -> int:
    """Steps for this many rows: many passes over small data, few over large.

    >>> [automatic_steps(n) for n in (10, 100, 1000, 10_000, 100_000)]
    [100, 800, 2600, 3500, 10000]
    """
    return int(max(100, min(10 * rows, 400 + 4 * rows, 2500 + rows // 10, 10_000)))


def moments(values: Doubles) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation of each column; 1 where a column is constant."""
    mean, scale = values.mean(axis=0), values.std(axis=0)
    tiny = 10 * np.finfo(np.float64).eps * np.abs(mean)
    return mean, np.where(scale > tiny, scale, 1.0)


def run_until_finite(plan: Plan, attempt: Callable[[Plan], Result]) -> tuple[Result, float]:
    """Run; where the chains diverge, start again at a third of the lr. Also returns the lr used."""
    for number in range(ATTEMPTS):
        lr = plan.lr / 3**number
        try:
            return attempt(replace(plan, lr=lr)), lr
        except NonFiniteError as error:
            last = error
    raise NonFiniteError(
        f"the chains diverged at lr={plan.lr} and still at lr={lr:.3g}; use a smaller lr"
    ) from last
