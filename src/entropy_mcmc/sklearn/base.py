"""Base of both estimators: parameters, defaults that follow the data, and fitting."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
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
from entropy_mcmc.sklearn.chain_plan import Network, Plan
from entropy_mcmc.sklearn.column_encoding import Columns
from entropy_mcmc.sklearn.estimator_chains import Draws, Table
from entropy_mcmc.sklearn.fit_diagnostics import FitDiagnostics, described, probe
from entropy_mcmc.sklearn.frames import names_of, read_columns
from entropy_mcmc.sklearn.frozen_networks import FrozenNetworks
from entropy_mcmc.sklearn.networks import ACTIVATIONS
from entropy_mcmc.sklearn.selection import Candidate

Doubles = npt.NDArray[np.float64]
Result = TypeVar("Result")

ATTEMPTS = 4  # times that a diverged run starts again, each at a third of the lr
# Rows above which mini-batches, not the posterior, heat the chains until the lr is small: their
# heat is about lr·rows/(2·batch) times that of the posterior.
MANY_ROWS = 5000
UNDECIDED = 1.0  # prior variance and temperature of a plan until the rows have chosen them
BLOCK = 256  # rows of a prediction that are computed at once


class TabularEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the two estimators; see their docstrings for the parameters."""

    networks: ClassVar[tuple[Network, ...]]
    """What "auto" stands for; where there are several, held-out rows choose."""
    chain_limit: ClassVar[float]
    """Standard error that the choice of chains may leave in a prediction without a warning."""

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int | str = "auto",
        *,
        activation: str = "auto",
        n_chains: int = 4,
        n_samples: int = 8,
        n_steps: int | str = "auto",
        batch_size: int = 200,
        lr: float = 1.0,
        momentum: float = 0.98,
        guide_horizon: float = 50.0,
        temperature: float | str = 1.0,
        prior_variance: float | str = "auto",
        burn_in: float | str = "auto",
        roles: str = "theta",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        warm_start: bool = False,
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
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _read(self, X: Any, sample_weight: Any) -> tuple[list[npt.NDArray[Any]], Doubles | None]:
        """Columns of X, and the checked weights of its rows."""
        if self.warm_start:
            raise ConfigError(
                "warm_start must be False, got warm_start=True: chains of earlier rows are no "
                "draws for new ones; raise n_steps for longer chains"
            )
        columns = read_columns(self, X, reset=True)
        if sample_weight is None:
            return columns, None
        first = columns[0][:, None]
        weights: Doubles = _check_sample_weight(sample_weight, first, dtype=np.float64)
        if weights.min() < 0:
            raise ConfigError(
                f"sample_weight must be at least 0, got {weights.min()} in row {weights.argmin()}; "
                f"pass 0 for a row that must not count"
            )
        return columns, weights

    def _require(self, y: Any) -> None:
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                f"is None."
            )

    def _table(
        self, columns: list[npt.NDArray[Any]], targets: Doubles, weights: Doubles | None
    ) -> Table:
        """Inputs, targets and weights as the chains see them; rows of weight 0 are left out."""
        if weights is not None:
            kept = weights > 0
            columns, targets, weights = [c[kept] for c in columns], targets[kept], weights[kept]
        self.columns_ = Columns.of(columns, np.ones(len(targets)) if weights is None else weights)
        x = torch.from_numpy(self.columns_.inputs(columns).astype(np.float32))
        y = torch.from_numpy(targets.astype(np.float32))
        if weights is None:
            return Table(x, y)
        share = torch.from_numpy((weights / weights.mean()).astype(np.float32))
        return Table(x, y, share, float(weights.sum()))

    def _keep(self, plan: Plan, draws: Draws, lr: float, table: Table) -> None:
        """What a prediction needs: networks in the order (chain, sample, role)."""
        self._forget()
        self._chains = plan.chains
        self._probe = probe(table.x)
        self.lr_ = lr
        self.hidden_layer_sizes_ = plan.sizes[1:-1]
        self.activation_ = plan.activation
        self.prior_variance_ = plan.prior_variance
        self.temperature_ = plan.temperature
        self.n_steps_ = plan.steps
        self._form = plan.architecture
        self.weights_ = draws.flat.transpose(0, 1).flatten(0, 1).numpy()
        self.heats_ = draws.heats.transpose(0, 1).flatten().numpy()

    def _forget(self) -> None:
        """Drop what an earlier fit left and this one does not replace."""
        for name in ("calibration_scores_", "estimators_"):
            self.__dict__.pop(name, None)

    def _networks(self) -> list[Network]:
        """The networks that the parameters allow, each once."""
        check_choice("activation", self.activation, ("auto", *ACTIVATIONS))
        networks: list[Network] = []
        sizes = widths(self.hidden_layer_sizes)
        for hidden, activation in self.networks:
            network = (
                hidden if sizes is None else sizes,
                activation if self.activation == "auto" else self.activation,
            )
            networks += [] if network in networks else [network]
        return networks

    def _fixed_prior(self) -> float:
        if self.prior_variance == "auto":
            return UNDECIDED
        return check_positive("prior_variance", self.prior_variance, remedy='or pass "auto"')

    def _fixed_temperature(self) -> float:
        if isinstance(self.temperature, str) and self.temperature == "auto":
            return UNDECIDED
        return check_not_negative("temperature", self.temperature)

    def _fixed_burn_in(self, rows: int) -> float:
        if self.burn_in == "auto":
            return 0.8 if rows > MANY_ROWS else 0.5
        return check_fraction("burn_in", self.burn_in)

    def _plan(self, inputs: Tensor, outputs: int) -> Plan:
        rows, features = inputs.shape
        hidden, activation = self._networks()[0]
        check_choice("roles", self.roles, ("theta", "guide", "both"))
        steps = self._automatic_steps(rows) if self.n_steps == "auto" else self.n_steps
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
            temperature=self._fixed_temperature(),
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

    @staticmethod
    def _automatic_steps(rows: int) -> int:
        raise NotImplementedError

    @property
    def diagnostics_(self) -> FitDiagnostics:
        """Whether the chains agree, what was chosen, and the scores of all that was tried."""
        check_is_fitted(self)
        predictions, error = self._agreement()
        return described(
            predictions,
            self._chains,
            error,
            self.chain_limit,
            chosen=self._chosen(),
            scores=dict(self.scores_),
            lr=self.lr_,
            steps=self.n_steps_,
        )

    def _agreement(self) -> tuple[Doubles, float | None]:
        """Predictions for rows between those of fit, and the error that chains leave in them."""
        raise NotImplementedError

    def _chosen(self) -> str:
        network = (self.hidden_layer_sizes_, self.activation_)
        return str(Candidate(network, self.prior_variance_, self.temperature_))

    def _outputs(self, X: Any) -> Iterator[Tensor]:
        """Outputs (networks, out, rows), some rows at a time."""
        return self._outputs_of(self._inputs(X))

    def _outputs_of(self, inputs: Tensor) -> Iterator[Tensor]:
        """Outputs for blocks of `BLOCK` rows, computed in single precision."""
        networks = FrozenNetworks(self._form, torch.from_numpy(self.weights_), BLOCK)
        with torch.no_grad(), self._threads():
            for rows in torch.split(inputs.float(), BLOCK):
                yield networks.outputs(rows).double()

    def _inputs(self, X: Any) -> Tensor:
        """What networks see of X, in float64."""
        check_is_fitted(self)
        columns = read_columns(self, X, reset=False)
        return torch.from_numpy(self.columns_.inputs(columns, names_of(X)))

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Inside the block torch uses `n_jobs` threads; None leaves it as it is, −1 takes all."""
        before = torch.get_num_threads()
        if self.n_jobs is None:
            yield
            return
        every = self.n_jobs == -1
        remedy = "or pass -1 for all processors, None for torch's own number"
        jobs = os.cpu_count() if every else check_count("n_jobs", self.n_jobs, remedy=remedy)
        torch.set_num_threads(jobs or 1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _say(self, line: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {line}", flush=True)


def widths(sizes: Any) -> tuple[int, ...] | None:
    """Widths of the hidden layers; one number is one layer, None stands for "auto".

    >>> widths(50), widths([20, 10]), widths("auto")
    ((50,), (20, 10), None)
    """
    if isinstance(sizes, str) and sizes == "auto":
        return None
    if isinstance(sizes, str) or not (np.iterable(sizes) or isinstance(sizes, int)):
        raise ConfigError(
            f"hidden_layer_sizes must be widths like (50, 50), got hidden_layer_sizes={sizes!r}; "
            f'pass () for a linear model, or "auto"'
        )
    each = sizes if np.iterable(sizes) else (sizes,)
    remedy = 'pass () for a linear model, or "auto"'
    return tuple(check_count("hidden_layer_sizes", width, remedy=remedy) for width in each)


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
