"""`EntropyMCMCRegressor`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_number
from entropy_mcmc.sklearn.base import (
    MANY_ROWS,
    Doubles,
    LikelihoodMaker,
    TabularEstimator,
    moments,
    run_until_finite,
)
from entropy_mcmc.sklearn.likelihood import Gaussian
from entropy_mcmc.sklearn.mixture_quantiles import mixture_quantiles
from entropy_mcmc.sklearn.plan import Network, Plan
from entropy_mcmc.sklearn.regressor_selection import (
    CANDIDATES,
    LARGE,
    LEAST_ROWS,
    SMALL,
    guess_noise,
)


class EntropyMCMCRegressor(RegressorMixin, TabularEstimator):  # type: ignore[misc]
    """Regressor of tabular data: means, standard deviations and intervals of sampled networks.

    The prediction is a mixture: each kept network gives a Gaussian around its output, whose
    variance is the noise learned from all chains. Inputs and targets are standardised inside.
    The parameters are those of `EntropyMCMCClassifier`; "auto" is a network of two hidden layers
    of 50 with "silu".

    Up to 5000 rows a pilot run on three folds picks the prior variance ("auto") and a first noise
    variance from held-out rows; above, the prior variance is 3 and the noise is learned alone.
    What small data cannot tell from noise, misfit included, counts as noise. Rows have equal
    weight: there is no `sample_weight`.

    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> model = EntropyMCMCRegressor(random_state=0).fit(x, 3 * x[:, 0])
    >>> mean, std = model.predict([[0.5]], return_std=True)
    >>> low, high = model.predict_interval([[0.5]], level=0.95)[0]
    >>> bool(low < 1.5 < high), bool(std[0] < 0.5)
    (True, True)
    """

    networks: ClassVar[tuple[Network, ...]] = (((50, 50), "silu"),)

    def fit(self, X: Any, y: Any) -> EntropyMCMCRegressor:
        """Sample networks for the rows of X and their targets y."""
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", y_numeric=True)
        y = column_or_1d(y, dtype=np.float64, warn=True)
        mean, scale = moments(y[:, None])
        self.y_mean_, self.y_scale_ = float(mean[0]), float(scale[0])
        targets = torch.from_numpy(((y - self.y_mean_) / self.y_scale_).astype(np.float32))
        self._sample(X, targets, 1)
        return self

    def _choose(self, plan: Plan, x: Tensor, targets: Tensor) -> tuple[Plan, LikelihoodMaker]:
        fixed = self.prior_variance != "auto"
        guess = SMALL if len(x) < LEAST_ROWS else LARGE
        if LEAST_ROWS <= len(x) <= MANY_ROWS:
            candidates = (plan.prior_variance,) if fixed else CANDIDATES
            pick = partial(guess_noise, x=x, y=targets, candidates=candidates)
            guess = run_until_finite(plan, pick)[0]
        variance = plan.prior_variance if fixed else guess.prior_variance
        likelihood = partial(Gaussian, guess.noise, guess.weight, len(x))
        return replace(plan, prior_variance=variance), likelihood

    def sample_predictions(self, X: Any) -> Doubles:
        """Output of every kept network, in the units of y: (networks, rows)."""
        outputs = torch.cat([out.squeeze(-1) for out in self._outputs(X)], dim=1).numpy()
        means: Doubles = self.y_mean_ + self.y_scale_ * outputs
        return means

    @property
    def noise_std_(self) -> Doubles:
        """Learned standard deviation of the noise for each kept network, in the units of y."""
        std: Doubles = self.y_scale_ * np.sqrt(self.heats_.astype(np.float64))
        return std

    def predict(self, X: Any, return_std: bool = False) -> Doubles | tuple[Doubles, Doubles]:
        """Mean of the predictive mixture, and its standard deviation if asked for."""
        means = self.sample_predictions(X)
        mean: Doubles = means.mean(axis=0)
        if not return_std:
            return mean
        return mean, np.sqrt(means.var(axis=0) + np.mean(self.noise_std_**2))

    def predict_interval(self, X: Any, level: float = 0.95) -> Doubles:
        """Central interval of the predictive mixture that holds `level` of it: (rows, 2)."""
        if not 0 < check_number("level", level) < 1:
            raise ConfigError(f"level must be between 0 and 1, got level={level!r}")
        tail = (1 - level) / 2
        means = self.sample_predictions(X)
        ends = [mixture_quantiles(means, self.noise_std_, q) for q in (tail, 1 - tail)]
        return np.stack(ends, axis=1)
