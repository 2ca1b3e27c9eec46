"""`EntropyMCMCRegressor`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from entropy_mcmc.errors import ConfigError, check_choice, check_not_negative, check_number
from entropy_mcmc.sklearn.base import Doubles, TabularEstimator, run_until_finite
from entropy_mcmc.sklearn.chain_plan import Network, Plan
from entropy_mcmc.sklearn.conformal import conformal_bound
from entropy_mcmc.sklearn.estimator_chains import Table, run
from entropy_mcmc.sklearn.fit_diagnostics import chain_error, warn_if_apart
from entropy_mcmc.sklearn.likelihood import Gaussian
from entropy_mcmc.sklearn.mixture_quantiles import check_quantiles, mixture_cdf, mixture_quantiles
from entropy_mcmc.sklearn.noise_models import (
    NoiseModel,
    fit_noise,
    mixture_log_density,
    reweighted,
)
from entropy_mcmc.sklearn.regressor_selection import (
    LEAST_ROWS,
    LINEAR_PRIORS,
    PRIORS,
    Pilot,
    pilot,
)
from entropy_mcmc.sklearn.targets import target_numbers

NOISES = {
    "auto": ("constant", "dependent", "gaussian", "student"),
    "gaussian": ("constant", "gaussian"),
    "student": ("constant", "student"),
    "heteroscedastic": ("dependent", "gaussian"),
}
FALLBACK_NOISE = 0.3  # of standardised targets, where no row can be held out
SUREST = 1 - 1e-9  # level of an interval that must hold everything
NOISE_WEIGHT = 50.0  # rows that the pilot's noise variance is worth


class EntropyMCMCRegressor(RegressorMixin, TabularEstimator):  # type: ignore[misc]
    """Regressor of tabular data: means, quantiles and intervals of sampled networks.

    The prediction is a mixture: each kept network gives a density around its output, whose scale is
    the noise learned from all chains. Targets are standardised inside; columns are treated as by
    `EntropyMCMCClassifier`, whose parameters these are, with two differences: `noise` says what
    the noise may be, and the temperature is 1 (Bayes).

    A pilot run on three folds picks from held-out rows the network ("auto": two hidden layers of 50
    with "silu", or none), the prior variance, a first noise variance, and whether the noise is
    constant or depends on the row, Gaussian or Student's t. What small data cannot tell from noise,
    misfit included, counts as noise.

    Several targets (rows, outputs) are fitted one after the other, each by networks of its own.
    Predictions then have one more axis, the last; what was chosen for a target (`scores_`,
    `noise_model_`, …) is in its element of `estimators_`, and `diagnostics_` is a list.

    Args:
        noise: "auto" lets held-out rows choose; "gaussian" and "student" are constant,
            "heteroscedastic" is Gaussian noise that depends on the row.

    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> model = EntropyMCMCRegressor(random_state=0).fit(x, 3 * x[:, 0])
    >>> mean, std = model.predict([[0.5]], return_std=True)
    >>> low, high = model.predict_interval([[0.5]], level=0.95)[0]
    >>> bool(low < 1.5 < high), bool(std[0] < 0.5)
    (True, True)
    """

    networks: ClassVar[tuple[Network, ...]] = (((50, 50), "silu"), ((), "silu"))
    chain_limit: ClassVar[float] = 0.5

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int | str = "auto",
        *,
        activation: str = "auto",
        noise: str = "auto",
        n_chains: int = 4,
        n_samples: int = 8,
        n_steps: int | str = "auto",
        batch_size: int = 200,
        lr: float = 1.0,
        momentum: float = 0.98,
        guide_horizon: float = 50.0,
        temperature: float = 1.0,
        prior_variance: float | str = "auto",
        burn_in: float | str = "auto",
        roles: str = "theta",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        warm_start: bool = False,
    ) -> None:
        super().__init__(
            hidden_layer_sizes,
            activation=activation,
            n_chains=n_chains,
            n_samples=n_samples,
            n_steps=n_steps,
            batch_size=batch_size,
            lr=lr,
            momentum=momentum,
            guide_horizon=guide_horizon,
            temperature=temperature,
            prior_variance=prior_variance,
            burn_in=burn_in,
            roles=roles,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.noise = noise

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EntropyMCMCRegressor:
        """Sample networks for the rows of X, their targets y and their weights."""
        columns, weights = self._read(X, sample_weight)
        self._require(y)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(columns[0], y)
        if y.ndim == 2 and y.shape[1] > 1:
            self._forget()
            self.estimators_ = [clone(self).fit(X, each, sample_weight) for each in y.T]
            return self
        y = y.reshape(len(columns[0]), -1)
        counts = np.ones(len(y)) if weights is None else weights
        self.y_mean_ = float(np.average(y[:, 0], weights=counts))
        spread = math.sqrt(float(np.average((y[:, 0] - self.y_mean_) ** 2, weights=counts)))
        tiny = 10 * np.finfo(np.float64).eps * abs(self.y_mean_)
        self.y_scale_ = spread if spread > tiny else 1.0
        with self._threads():
            self._sample(self._table(columns, (y - self.y_mean_) / self.y_scale_, weights))
        return self

    def _sample(self, table: Table) -> None:
        check_choice("noise", self.noise, tuple(NOISES))
        check_not_negative("temperature", self.temperature, remedy="pass 1.0, which is Bayes")
        kinds = NOISES[self.noise]
        plan = self._plan(table.x, 1)
        fixed = self.prior_variance != "auto"
        guess = FALLBACK_NOISE
        self.noise_model_ = NoiseModel()
        self.scores_: dict[str, float] = {}
        if len(table) >= LEAST_ROWS:
            pilots = []
            for network in self._networks():
                grid = PRIORS if network[0] else LINEAR_PRIORS
                priors = (plan.prior_variance,) if fixed else grid
                attempt = partial(pilot, table=table, network=network, priors=priors)
                pilots.append(run_until_finite(plan, attempt)[0])
            first = max(pilots, key=lambda p: float(p.scores.max()))
            self._tell(pilots)
            best, guess = first.candidates[first.best], first.noise
            plan = replace(plan.using(best.network), prior_variance=best.prior_variance)
            errors = first.errors[:, first.best]
            model, noises = fit_noise(plan, table, first.rows, errors, guess, kinds)
            table, self.noise_model_ = reweighted(table, model)
            guess *= self.noise_model_.expected
            self._say_noise(noises)
        attempt_run = partial(run_gaussian, table=table, guess=guess)
        draws, lr = run_until_finite(plan, attempt_run)
        self._keep(plan, draws, lr, table)
        self._say(f"chosen: {self._chosen()}")
        warn_if_apart(type(self).__name__, len(table), self._agreement()[1], self.chain_limit)

    def _agreement(self) -> tuple[Doubles, float | None]:
        outputs = torch.cat([out.squeeze(1) for out in self._outputs_of(self._probe)], dim=1)
        means: Doubles = outputs.numpy()
        noise = self.heats_.mean() * self.noise_model_.factors(self._probe).numpy()
        unit = np.sqrt(means.var(axis=0) + noise)
        return means, chain_error(means, self._chains, unit)

    def _chosen(self) -> str:
        return f"{super()._chosen()}, noise: {self.noise_model_.name}"

    def _tell(self, pilots: Sequence[Pilot]) -> None:
        """Keep the held-out NLL of every candidate, and print it if asked to."""
        for each in pilots:
            for candidate, score in zip(each.candidates, each.scores.amax(dim=0), strict=True):
                self.scores_[str(candidate)] = -float(score)
                self._say(f"{candidate}: held-out NLL {-float(score):.4f}")

    def _say_noise(self, scores: dict[str, float]) -> None:
        """Keep the held-out NLL of every noise model, and print it if asked to."""
        for name, score in scores.items():
            self.scores_[f"noise: {name}"] = score
            self._say(f"noise: {name}: held-out NLL {score:.4f}")

    @property
    def diagnostics_(self) -> Any:
        """Whether chains agree, what was chosen and tried; for several targets, a list."""
        if hasattr(self, "estimators_"):
            return [each.diagnostics_ for each in self.estimators_]
        return super().diagnostics_

    @staticmethod
    def _automatic_steps(rows: int) -> int:
        return automatic_steps(rows)

    def sample_predictions(self, X: Any) -> Doubles:
        """Output of every kept network, in the units of y: (networks, rows).

        Networks are in the order (chain, sample, role): reshape the first axis to (n_chains, −1)
        to compare chains. Several targets are the last axis.
        """
        if hasattr(self, "estimators_"):
            return np.stack([e.sample_predictions(X) for e in self.estimators_], axis=-1)
        outputs = torch.cat([out.squeeze(1) for out in self._outputs(X)], dim=1).numpy()
        means: Doubles = self.y_mean_ + self.y_scale_ * outputs
        return means

    @property
    def noise_std_(self) -> Doubles:
        """Learned level of the noise for each kept network, in the units of y.

        It is the standard deviation of constant Gaussian noise; other noise has it as its level.
        Several targets are the last axis.
        """
        check_is_fitted(self)
        if hasattr(self, "estimators_"):
            return np.stack([each.noise_std_ for each in self.estimators_], axis=-1)
        std: Doubles = self.y_scale_ * np.sqrt(self.heats_.astype(np.float64))
        return std

    @property
    def _degrees(self) -> float:
        return self.noise_model_.degrees

    def _scales(self, X: Any) -> Doubles:
        """Scale of the noise of every kept network at every row, (networks, rows)."""
        factors = self.noise_model_.factors(self._inputs(X)).numpy()
        scales: Doubles = self.noise_std_[:, None] * np.sqrt(factors)[None]
        return scales

    def predict(self, X: Any, return_std: bool = False) -> Doubles | tuple[Doubles, Doubles]:
        """Mean of the predictive mixture, and its standard deviation if asked for."""
        if hasattr(self, "estimators_"):
            parts = [e.predict(X, return_std=True) for e in self.estimators_]
            both = tuple(np.stack(part, axis=-1) for part in zip(*parts, strict=True))
            return (both[0], both[1]) if return_std else both[0]
        means = self.sample_predictions(X)
        mean: Doubles = means.mean(axis=0)
        if not return_std:
            return mean
        degrees = self.noise_model_.degrees
        heavier = 1.0 if math.isinf(degrees) else degrees / (degrees - 2)
        noise = heavier * np.mean(self._scales(X) ** 2, axis=0)
        return mean, np.sqrt(means.var(axis=0) + noise)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Doubles:
        """Quantiles of the predictive mixture: (rows, quantiles), several targets the last axis."""
        check_quantiles(quantiles)
        if hasattr(self, "estimators_"):
            each = [e.predict_quantiles(X, quantiles) for e in self.estimators_]
            return np.stack(each, axis=-1)
        means, scales = self.sample_predictions(X), self._scales(X)
        degrees = self._degrees
        ends = [mixture_quantiles(means, scales, float(q), degrees) for q in quantiles]
        return np.stack(ends, axis=1)

    def calibrate(self, X: Any, y: Any) -> EntropyMCMCRegressor:
        """Keep the scores of rows that were not in `fit`, for conformal intervals."""
        if hasattr(self, "estimators_"):
            for each, column in zip(
                self.estimators_, target_numbers(y, len(self.estimators_)).T, strict=True
            ):
                each.calibrate(X, column)
            return self
        means, scales, y = self.sample_predictions(X), self._scales(X), target_numbers(y, 1)
        check_consistent_length(means.T, y)
        places = mixture_cdf(y, means, scales, self._degrees)
        self.calibration_scores_ = 2 * np.abs(places - 0.5)
        return self

    def predict_interval(self, X: Any, level: float = 0.95, *, conformal: bool = False) -> Doubles:
        """Central interval of the predictive mixture that holds `level` of it: (rows, 2).

        With `conformal`, after `calibrate`, the level of the mixture is that at which intervals
        held `level` of the calibration rows: a new row lies inside with at least this probability.
        """
        if not 0 < check_number("level", level) < 1:
            raise ConfigError(f"level must be between 0 and 1, got level={level!r}")
        if conformal and hasattr(self, "estimators_"):
            each = [e.predict_interval(X, level, conformal=True) for e in self.estimators_]
            return np.stack(each, axis=-1)
        if conformal:
            if not hasattr(self, "calibration_scores_"):
                raise NotFittedError("conformal=True needs calibrate(X, y) with rows not in fit")
            level = min(conformal_bound(self.calibration_scores_, level), SUREST)
        tail = (1 - level) / 2
        return self.predict_quantiles(X, (tail, 1 - tail))

    def log_density(self, X: Any, y: Any) -> Doubles:
        """Logarithm of the predictive density at y, (rows,): its mean is the log score.

        Several targets are the last axis.
        """
        if hasattr(self, "estimators_"):
            columns = target_numbers(y, len(self.estimators_)).T
            pairs = zip(self.estimators_, columns, strict=True)
            return np.stack([each.log_density(X, column) for each, column in pairs], axis=-1)
        means, y = self.sample_predictions(X), target_numbers(y, 1)
        check_consistent_length(means.T, y)
        errors = torch.from_numpy(y - means)
        squared = torch.from_numpy(self._scales(X) ** 2)
        logs: Doubles = mixture_log_density(errors, squared, self.noise_model_.degrees).numpy()
        return logs


def run_gaussian(plan: Plan, table: Table, guess: float) -> Any:
    """The chains on all rows; their noise variance begins at `guess`."""
    return run(plan, table, Gaussian(guess, NOISE_WEIGHT, len(table)))


def automatic_steps(rows: int) -> int:
    """Steps for this many rows: many passes over small data, few over large.

    >>> [automatic_steps(n) for n in (10, 100, 1000, 10_000, 100_000)]
    [100, 600, 1600, 2500, 6000]
    """
    return int(max(100, min(10 * rows, 400 + 2 * rows, 1500 + rows // 10, 6000)))
