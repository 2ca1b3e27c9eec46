"""Outputs of networks → averaged predictions → measures, as they are and after scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from entropy_mcmc import metrics

LOWER_IS_BETTER = {"nll": True, "ece": True, "brier": True, "accuracy": False, "auroc": False}


@dataclass(frozen=True)
class Answers:
    """Outputs of all networks of a method, by part: (networks, rows, outputs)."""

    validation: np.ndarray
    test: np.ndarray
    ood: tuple[np.ndarray, ...]
    validation_y: np.ndarray
    test_y: np.ndarray


def divided(outputs: np.ndarray, sizes: Sequence[int], y: Sequence[np.ndarray]) -> Answers:
    """The parts of stored outputs; `sizes` are rows of validation, test and OOD sets."""
    parts = np.split(outputs, np.cumsum(sizes)[:-1], axis=1)
    return Answers(parts[0], parts[1], tuple(parts[2:]), *y)


def averaged(logits: np.ndarray) -> np.ndarray:
    """Mean over networks of their probabilities."""
    mean = softmax(logits.astype(np.float64), axis=-1).mean(axis=0)
    return np.asarray(mean / mean.sum(axis=-1, keepdims=True))


def measures(answers: Answers) -> dict[str, float]:
    """All measures of a method's run; names that end in "-scaled" are after scaling."""
    if np.issubdtype(answers.test_y.dtype, np.floating):
        return _regression(answers)
    test, y = averaged(answers.test), answers.test_y
    inverse = fitted_scale(averaged(answers.validation), answers.validation_y)
    outside = [averaged(part) for part in answers.ood]
    scored = _classification(test, y, outside)
    rescaled = _classification(
        scaled(test, inverse), y, [scaled(part, inverse) for part in outside]
    )
    validation = metrics.nll(averaged(answers.validation), answers.validation_y)
    return (
        scored
        | {f"{name}-scaled": value for name, value in rescaled.items()}
        | {"scale": inverse, "validation-nll": validation, "networks": len(answers.test)}
    )


def _classification(
    probs: np.ndarray, y: np.ndarray, outside: Sequence[np.ndarray]
) -> dict[str, float]:
    scored = {
        "nll": metrics.nll(probs, y),
        "ece": metrics.ece(probs, y),
        "brier": metrics.brier(probs, y),
        "accuracy": metrics.accuracy(probs, y),
    }
    if outside:
        inside = metrics.predictive_entropy(probs)
        areas = [metrics.auroc(inside, metrics.predictive_entropy(part)) for part in outside]
        scored["auroc"] = float(np.mean(areas))
    return scored


def scaled(probs: np.ndarray, inverse: float) -> np.ndarray:
    """Probabilities ∝ p^inverse: temperature scaling by 1/inverse."""
    return np.asarray(softmax(inverse * np.log(np.maximum(probs, 1e-300)), axis=-1))


def fitted_scale(probs: np.ndarray, y: np.ndarray) -> float:
    """The exponent, between 1/20 and 20, with the smallest NLL on these rows."""
    best = minimize_scalar(
        lambda log: metrics.nll(scaled(probs, float(np.exp(log))), y),
        bounds=(-3.0, 3.0),
        method="bounded",
    )
    return float(np.exp(best.x))


def _regression(answers: Answers) -> dict[str, float]:
    log_variance = fitted_noise(answers.validation[..., 0], answers.validation_y)
    test, y = answers.test[..., 0].astype(np.float64), answers.test_y
    held = mixture_nll(answers.validation[..., 0], answers.validation_y, log_variance)
    nll = mixture_nll(test, y, log_variance)
    return {
        "nll": nll,
        "nll-scaled": nll,  # the noise variance is fitted for every method
        "rmse": metrics.rmse(test.mean(axis=0), y),
        "noise": float(np.exp(log_variance)),
        "validation-nll": held,
        "networks": len(test),
    }


def mixture_nll(means: np.ndarray, y: np.ndarray, log_variance: float) -> float:
    """NLL of the equal mixture of N(mean of network, variance)."""
    squares = (means.astype(np.float64) - y) ** 2 / np.exp(log_variance)
    logs = -0.5 * (squares + log_variance + np.log(2 * np.pi))
    return float(-(logsumexp(logs, axis=0) - np.log(len(means))).mean())


def fitted_noise(means: np.ndarray, y: np.ndarray) -> float:
    """Log of the noise variance with the smallest NLL on these rows."""
    best = minimize_scalar(
        lambda log: mixture_nll(means, y, log), bounds=(-12.0, 3.0), method="bounded"
    )
    return float(best.x)
