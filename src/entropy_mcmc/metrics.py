r"""How good are the predictions? Every metric is a function `(probs, targets) → float`.

`probs` has shape `(n, classes)`: one row per example, non-negative, summing to 1 (probabilities,
not logits). `targets` has shape `(n,)`: the index of the true class, counted from 0. Both may be
torch tensors on any device or numpy arrays; all sums are taken in float64.

- Is the answer right? `accuracy`.
- Are the probabilities right? `nll`, `brier`, `ece` (all: lower is better).
- Does the model know when it is wrong? `misclassification_auroc`, `misclassification_ece`.
- Does it notice data of another kind? `auroc`, `aupr`, `fpr95` of a score such as
  `predictive_entropy` or `mutual_information`.
- Regression: `gaussian_nll`, `rmse`, `coverage`.

What has no answer (no examples, a NaN, rows that are not probabilities, the AUROC of one class)
raises `ConfigError`; no metric ever returns NaN.

>>> probs, targets = [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]], [0, 1, 1]
>>> {name: round(value, 4) for name, value in summary(probs, targets).items()}  # doctest: +ELLIPSIS
{'accuracy': 0.6667, 'nll': 0.4594, 'brier': 0.3067, 'ece': 0.3333, 'misclassification_ece': ...}
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Literal

import numpy as np

from entropy_mcmc._metric_inputs import (
    MASS_BINS,
    Array,
    Floats,
    Integers,
    equal_width_bins,
    probabilities,
    probabilities_and_labels,
    same_shape,
    scores,
)
from entropy_mcmc.errors import ConfigError, check_choice, check_count, check_number

__all__ = [
    "accuracy",
    "aupr",
    "auroc",
    "brier",
    "coverage",
    "ece",
    "fpr95",
    "gaussian_nll",
    "misclassification_auroc",
    "misclassification_ece",
    "mutual_information",
    "nll",
    "predictive_entropy",
    "rmse",
    "summary",
]

Binning = Literal["width", "mass"]
Positive = Literal["out", "in"]


def summary(probs: Array, targets: Array) -> dict[str, float]:
    """All classification metrics by name, ready for a table or a JSON file.

    `misclassification_auroc` is left out when every prediction is right or every one is wrong:
    there is then nothing to tell apart, and the metric has no value.
    """
    _, correct = _confidence(probs, targets)
    metrics = [accuracy, nll, brier, ece, misclassification_ece]
    if 0 < correct.sum() < len(correct):
        metrics.append(misclassification_auroc)
    return {metric.__name__: metric(probs, targets) for metric in metrics}


def accuracy(probs: Array, targets: Array) -> float:
    """Fraction of rows whose largest probability is the target's; of tied classes the first counts.

    >>> accuracy([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]], [0, 1, 0])
    1.0
    """
    _, correct = _confidence(probs, targets)
    return float(correct.mean())


def nll(probs: Array, targets: Array) -> float:
    """Mean negative log-likelihood, −log p(target), in nats; 0 is perfect.

    Nothing is clipped: a target that was given probability 0 makes the result `inf`, which is its
    value (scikit-learn's `log_loss` clips instead, and its result then depends on the dtype).

    >>> nll([[1.0, 0.0]], [1])
    inf
    """
    at_target = _at_target(*probabilities_and_labels(probs, targets))
    with np.errstate(divide="ignore"):
        return float(-np.log(at_target).mean()) + 0.0  # + 0.0 turns -0.0 into 0.0


def brier(probs: Array, targets: Array) -> float:
    """Squared distance to the one-hot target, summed over classes: from 0 (perfect) to 2.

    This is Brier's own definition; for two classes it is twice the one-column form.

    >>> brier([[0.0, 1.0]], [0])
    2.0
    """
    checked, labels = probabilities_and_labels(probs, targets)
    residual = checked.copy()
    residual[np.arange(len(labels)), labels] -= 1
    return float(np.square(residual).sum(axis=1).mean())


def ece(probs: Array, targets: Array, bins: int | None = None, binning: Binning = "width") -> float:
    r"""Expected calibration error: how far confidence is from accuracy, 0 (calibrated) to 1.

    The confidence of a row is its largest probability. Rows are grouped into bins of similar
    confidence, and ECE = Σ_b (n_b/n)·|accuracy_b − mean confidence_b|.

    Args:
        probs: Probabilities `(n, classes)`.
        targets: Class indices `(n,)`.
        bins: Number of bins; `None` means 15 for equal width and 10 for equal mass.
        binning: `"width"`: bin k holds confidences in (k/bins, (k+1)/bins]. `"mass"`: rows sorted
            by confidence and cut at ⌊k·n/bins⌋, so that bins hold equally many rows, as in the
            code of the Entropy-MCMC paper. Tied rows share their mean accuracy, so that the order
            of the rows never matters; empty bins count nothing.

    >>> ece([[0.8, 0.2], [0.8, 0.2]], [0, 1])
    0.30000000000000004
    """
    check_choice("binning", binning, ("width", "mass"))
    count = MASS_BINS if bins is None else check_count("bins", bins)
    confidence, correct = _confidence(probs, targets)
    if binning == "width":
        index = equal_width_bins(confidence, bins)
    else:
        confidence, correct = _sorted_with_shared_ties(confidence, correct)
        cuts = [k * len(correct) // count for k in range(1, count)]
        index = np.searchsorted(cuts, np.arange(len(correct)), side="right")
    gaps = np.bincount(index, weights=confidence - correct)
    return float(np.abs(gaps).sum() / len(correct))


def misclassification_auroc(probs: Array, targets: Array) -> float:
    """Probability that a right prediction is more confident than a wrong one; 0.5 is chance.

    The area under the ROC curve of the confidence (largest probability), with "the prediction is
    right" as the positive class. Ties count one half. Needs a right and a wrong prediction.
    """
    confidence, correct = _confidence(probs, targets)
    right = correct.astype(bool)
    if right.all() or not right.any():
        raise ConfigError(
            "misclassification_auroc needs at least one right and one wrong prediction, got "
            f"{int(right.sum())} right of {len(right)}; use more examples or report accuracy only"
        )
    return auroc(confidence[~right], confidence[right])


def misclassification_ece(probs: Array, targets: Array, bins: int | None = None) -> float:
    """Calibration error of the confidence as a predictor of being right, with equal-mass bins.

    The column "ECE" of the paper's calibration table: `ece` with `binning="mass"`, 10 bins.
    """
    return ece(probs, targets, bins, binning="mass")


def auroc(scores_in: Array, scores_out: Array) -> float:
    """Area under the ROC curve for detecting out-of-distribution (OOD) examples.

    Args:
        scores_in: One score per in-distribution example, shape `(n,)`.
        scores_out: One score per OOD example, shape `(m,)`. **OOD is the positive class**: a
            larger score must mean "more likely OOD", as with `predictive_entropy`. Negate a
            confidence before passing it.

    Returns:
        The probability that a random OOD example scores above a random in-distribution one, ties
        counting one half: 1 is perfect, 0.5 is chance.

    >>> auroc([0.1, 0.2], [0.2, 0.9])
    0.875
    """
    hits, alarms = _detected(scores_in, scores_out, "out")
    pairs = np.diff(alarms, prepend=0.0) * (hits + np.concatenate([[0.0], hits[:-1]])) / 2
    return float(pairs.sum() / (hits[-1] * alarms[-1]))


def aupr(scores_in: Array, scores_out: Array, positive: Positive = "out") -> float:
    """Area under the precision-recall curve (average precision) for OOD detection.

    Arguments as for `auroc`: a larger score always means "more likely OOD". Unlike AUROC the value
    depends on which class is called positive; chance is that class's share of the examples.

    Args:
        scores_in: One score per in-distribution example.
        scores_out: One score per OOD example.
        positive: `"out"`, the default and what the paper's code reports, or `"in"`.

    >>> aupr([0.1, 0.9], [0.8])
    0.5
    """
    hits, alarms = _detected(scores_in, scores_out, positive)
    recall, precision = hits / hits[-1], hits / (hits + alarms)
    return float((np.diff(recall, prepend=0.0) * precision).sum())


def fpr95(scores_in: Array, scores_out: Array, positive: Positive = "out") -> float:
    """False-positive rate at the strictest threshold with a true-positive rate of at least 95 %.

    Arguments as for `auroc` and `aupr`. With `positive="out"` (default): the fraction of
    in-distribution examples flagged when 95 % of the OOD examples are. With `positive="in"`: the
    fraction of OOD examples accepted when 95 % of the in-distribution ones are. 0 is perfect.

    >>> fpr95([0.1, 0.2, 0.3, 0.9], [0.5, 0.7])
    0.25
    """
    hits, alarms = _detected(scores_in, scores_out, positive)
    return float((alarms / alarms[-1])[np.argmax(hits / hits[-1] >= 0.95)])


def predictive_entropy(probs: Array) -> Floats:
    """Entropy −Σ p·log p of every row in nats: 0 (certain) to log(classes); 0·log 0 is 0.

    >>> predictive_entropy([[1.0, 0.0], [0.5, 0.5]]).round(4).tolist()
    [0.0, 0.6931]
    """
    return _entropy(probabilities("probs", probs, axes=("n", "classes")))


def mutual_information(sample_probs: Array) -> Floats:
    """How much the posterior samples disagree, per example, in nats: the epistemic uncertainty.

    The entropy of the mean prediction minus the mean entropy of the predictions (also called
    BALD): 0 when all samples agree, at most log(min(samples, classes)). Rounding below 0 is cut.

    Args:
        sample_probs: Shape `(samples, n, classes)`, as from `Posterior.sample_predictions`.

    >>> mutual_information([[[1.0, 0.0]], [[0.0, 1.0]]]).round(4).tolist()
    [0.6931]
    """
    checked = probabilities("sample_probs", sample_probs, axes=("samples", "n", "classes"))
    gained: Floats = _entropy(checked.mean(axis=0)) - _entropy(checked).mean(axis=0)
    return np.maximum(gained, 0.0)


def gaussian_nll(mean: Array, variance: Array, targets: Array) -> float:
    """Mean of ½·log(2π·variance) + (target − mean)²/(2·variance), in nats; may be negative.

    The three must have one shape, and the variance must be positive: a point prediction has no
    likelihood.

    >>> round(gaussian_nll([0.0], [1.0], [0.0]), 4)
    0.9189
    """
    centre, spread, truth = same_shape(mean=mean, variance=variance, targets=targets)
    if spread.min() <= 0:
        raise ConfigError(
            f"variance must be greater than 0, got {spread.min():g}; "
            "pass exp(log variance), or add the noise variance of the data"
        )
    with np.errstate(over="ignore"):  # an astronomical error has the honest value inf
        squared = np.square((truth - centre) / np.sqrt(spread))
        return float((0.5 * (np.log(2 * np.pi) + np.log(spread) + squared)).mean())


def rmse(mean: Array, targets: Array) -> float:
    """Root of the mean squared difference between `mean` and `targets` (one shape).

    >>> rmse([0.0, 0.0], [3.0, -3.0])
    3.0
    """
    centre, truth = same_shape(mean=mean, targets=targets)
    with np.errstate(over="ignore"):
        error = np.abs(truth - centre)
    largest = float(error.max())
    if largest in (0.0, float("inf")):
        return largest
    return largest * float(np.sqrt(np.square(error / largest).mean()))  # no overflow in the squares


def coverage(mean: Array, std: Array, targets: Array, level: float = 0.95) -> float:
    """Fraction of targets inside the central Gaussian interval that should hold `level` of them.

    The interval is mean ± z·std with z the (1+level)/2 quantile of N(0, 1), ends included. Well
    calibrated predictions give a coverage near `level`. `std` may be 0.

    >>> coverage([0.0, 0.0], [1.0, 1.0], [1.9, 2.1])
    0.5
    """
    probability = check_number("level", level)
    if not 0 < probability < 1:
        raise ConfigError(f"level must be greater than 0 and less than 1, got level={level!r}")
    centre, spread, truth = same_shape(mean=mean, std=std, targets=targets)
    if spread.min() < 0:
        raise ConfigError(
            f"std must be at least 0, got {spread.min():g}; pass the square root of the variance"
        )
    half_width = NormalDist().inv_cdf((1 + probability) / 2) * spread
    return float((np.abs(truth - centre) <= half_width).mean())


def _confidence(probs: Array, targets: Array) -> tuple[Floats, Floats]:
    """Largest probability of every row, and 1.0 where it is at the target, else 0.0."""
    checked, labels = probabilities_and_labels(probs, targets)
    predicted = checked.argmax(axis=1)
    return _at_target(checked, predicted), (predicted == labels).astype(np.float64)


def _at_target(probs: Floats, labels: Integers) -> Floats:
    return probs[np.arange(len(labels)), labels]


def _sorted_with_shared_ties(confidence: Floats, correct: Floats) -> tuple[Floats, Floats]:
    _, group, size = np.unique(confidence, return_inverse=True, return_counts=True)
    shared = np.bincount(group, weights=correct) / size
    order = np.argsort(confidence, kind="stable")
    return confidence[order], shared[group[order]]


def _detected(scores_in: Array, scores_out: Array, positive: Positive) -> tuple[Floats, Floats]:
    """Positive and negative examples at or above each threshold, from the strictest on.

    Written out, because scikit-learn takes longer to import than a small run to be evaluated.
    """
    check_choice("positive", positive, ("out", "in"))
    inside, outside = scores("scores_in", scores_in), scores("scores_out", scores_out)
    # Numbers of the thresholds, from the least: they also order infinities.
    _, ranks = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    is_out = np.arange(len(ranks)) >= len(inside)
    is_positive, place = (is_out, ranks.max() - ranks) if positive == "out" else (~is_out, ranks)
    hits, alarms = (np.bincount(place, weights=kind) for kind in (is_positive, ~is_positive))
    return np.cumsum(hits), np.cumsum(alarms)


def _entropy(probs: Floats) -> Floats:
    from scipy.special import entr

    summed: Floats = entr(probs).sum(axis=-1)
    return summed
