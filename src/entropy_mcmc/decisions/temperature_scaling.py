r"""Temperature scaling: one number that makes probabilities less sure, or surer.

.. math:: p_\tau(k|x) = p(k|x)^{1/\tau} \Big/ \sum_j p(j|x)^{1/\tau}

of averaged probabilities p. The most probable class stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from entropy_mcmc._metric_inputs import (
    Array,
    Floats,
    Integers,
    probabilities,
    probabilities_and_labels,
)
from entropy_mcmc.decisions.json_file import JsonFile
from entropy_mcmc.errors import ConfigError, check_positive

FLOOR = float(np.finfo(np.float32).tiny)  # below it a float32 softmax has rounded to 0


@dataclass(frozen=True)
class TemperatureScaling(JsonFile):
    """The temperature τ of probabilities, and what it did to the rows that it was fitted on.

    Attributes:
        temperature: τ; above 1 the probabilities were too sure, below 1 too timid.
        rows: Rows it was fitted on.
        nll_before: Their mean NLL as the probabilities were.
        nll_after: The same with τ. On other rows the gain is smaller by about 1/rows nats, the
            optimism of one fitted number.
    """

    kind: ClassVar[str] = "temperature scaling"

    temperature: float
    rows: int
    nll_before: float
    nll_after: float

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    @classmethod
    def fit(cls, probs: Array, targets: Array) -> Self:
        """The τ of lowest NLL on validation rows, which nothing was trained on.

        Args:
            probs: (rows, classes), averaged over samples.
            targets: The true class of each row, from 0.

        Raises:
            ConfigError: The rows do not determine τ: every one is predicted right, or chance is
                as good as the probabilities.

        >>> probs = np.array([[0.99, 0.01], [0.99, 0.01], [0.01, 0.99], [0.01, 0.99]])
        >>> round(TemperatureScaling.fit(probs, [0, 0, 1, 0]).temperature, 3)
        4.183
        """
        from scipy.optimize import brentq

        checked, labels = probabilities_and_labels(probs, targets)
        logs = _logs(checked)
        _require_determined(logs, labels)
        high = 1.0
        while _slope(high, logs, labels) <= 0:
            high *= 2
        inverse = brentq(_slope, 0.0, high, args=(logs, labels), xtol=1e-12, rtol=1e-12)
        after = _nll(inverse * logs, labels)
        return cls(1 / float(inverse), len(labels), _nll(logs, labels), after)

    def __call__(self, probs: Array) -> Floats:
        """Probabilities (rows, classes) with τ."""
        scaled = _logs(probabilities("probs", probs, axes=("n", "classes"))) / self.temperature
        return np.asarray(np.exp(scaled - _log_sum(scaled)[:, None]))

    def __str__(self) -> str:
        return (
            f"temperature {self.temperature:.4g}: NLL {self.nll_before:.4f} → {self.nll_after:.4f} "
            f"on the {self.rows} rows it was fitted on"
        )


def _require_determined(logs: Floats, labels: Integers) -> None:
    """Raise unless the NLL, convex in 1/τ, has its minimum at a finite τ above 0."""
    right = int((logs.argmax(1) == labels).sum())
    if right == len(labels):
        raise ConfigError(
            f"a temperature must be determined by validation rows that are predicted wrong, got "
            f"{right} of {right} predicted right; use more rows, or leave the probabilities as "
            "they are"
        )
    if _slope(0.0, logs, labels) >= 0:
        raise ConfigError(
            f"the probabilities must be better than chance to be scaled, got {right} of "
            f"{len(labels)} rows predicted right and a lower NLL by equal probabilities; check "
            "that targets and probabilities belong to the same rows"
        )


def _slope(inverse: float, logs: Floats, labels: Integers) -> float:
    """Derivative of the mean NLL by 1/τ: E_τ[log p] − log p of the truth, increasing in 1/τ."""
    powered = inverse * logs
    weights = np.exp(powered - _log_sum(powered)[:, None])
    truth = logs[np.arange(len(labels)), labels]
    return float(((weights * logs).sum(axis=1) - truth).mean())


def _logs(probs: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(probs, FLOOR)))


def _log_sum(logs: Floats) -> Floats:
    top = logs.max(axis=1)
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)))


def _nll(logs: Floats, labels: Integers) -> float:
    return float((_log_sum(logs) - logs[np.arange(len(labels)), labels]).mean())
