"""`sklearn-contrib-bde`, microcanonical Langevin ensembles in JAX, in an environment of its own.

    python -m venv BDE && BDE/bin/pip install -c constraints.txt . sklearn-contrib-bde==1.0.2 pandas
    BDE/bin/python benchmarks/tables.py confirmation --methods bde bde-documented --splits 3

"bde" has the package's defaults, "bde-documented" the settings of the examples in its README. It
gets encoded, imputed and scaled columns like all others, and scaled targets, as its README has it.
Its CPU-seconds include JAX's compilation, which every fit needs again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

EXAMPLES: dict[str, dict[str, Any]] = {
    "classification": {
        "n_members": 4,
        "hidden_layers": [16, 16],
        "epochs": 1000,
        "warmup_steps": 400,
        "n_samples": 100,
        "n_thinning": 1,
        "patience": 10,
    },
    "regression": {
        "n_members": 8,
        "hidden_layers": [16, 16],
        "epochs": 200,
        "warmup_steps": 5000,
        "n_samples": 2000,
        "n_thinning": 2,
        "patience": 10,
    },
}


def classifier(prepared: Any, settings: dict[str, Any], seed: int) -> Any:
    """The classifier behind the columns that `prepared` makes."""
    from bde import BdeClassifier

    return prepared(BdeClassifier(seed=seed, **settings))


class Regressor:
    """The regressor with scaled targets, and the density of its mixture in their units."""

    def __init__(self, prepared: Any, settings: dict[str, Any], seed: int) -> None:
        from bde import BdeRegressor

        self._model = prepared(BdeRegressor(seed=seed, **settings))

    def fit(self, x: Any, y: Any) -> Regressor:
        """Fit to (y − mean)/std."""
        self._mean, self._std = float(y.mean()), float(y.std()) or 1.0
        self._model.fit(x, (y - self._mean) / self._std)
        return self

    def predict(self, x: Any) -> Any:
        """Mean of the mixture."""
        return self._mean + self._std * np.asarray(self._model.predict(x)).ravel()

    def predict_quantiles(self, x: Any, levels: list[float]) -> Any:
        """Quantiles, (rows, levels), by bde's own draws."""
        _, quantiles = self._model.predict(x, credible_intervals=levels)
        each = np.asarray(quantiles, dtype=float).reshape(len(levels), -1).T
        return self._mean + self._std * each

    def predict_interval(self, x: Any, level: float) -> Any:
        """Central interval, (rows, 2)."""
        tail = (1 - level) / 2
        return self.predict_quantiles(x, [tail, 1 - tail])

    def log_density(self, x: Any, y: Any) -> Any:
        """Logarithm of the mixture's density at y."""
        raw = np.asarray(self._model.predict(x, raw=True), dtype=float)
        raw = raw.reshape(-1, *raw.shape[-2:])  # networks, rows, (mean, scale before softplus)
        scales = np.logaddexp(0, raw[..., 1]) + 1e-6
        logs = norm.logpdf((y - self._mean) / self._std, raw[..., 0], scales)
        return logsumexp(logs, axis=0) - np.log(len(logs)) - np.log(self._std)
