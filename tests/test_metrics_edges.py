"""What metrics do at the edges of their domain: an exact value, or an error that helps."""

import math

import numpy as np
import pytest
import torch

from entropy_mcmc import metrics
from entropy_mcmc.errors import ConfigError
from naive_metrics import naive_brier, random_problem

PROBABILITY_METRICS = [
    metrics.accuracy,
    metrics.nll,
    metrics.brier,
    metrics.ece,
    metrics.misclassification_ece,
]


def test_certain_and_right_is_perfect():
    probs, targets = np.eye(3), np.arange(3)
    result = metrics.summary(probs, targets)
    assert result == {
        "accuracy": 1.0,
        "nll": 0.0,
        "brier": 0.0,
        "ece": 0.0,
        "misclassification_ece": 0.0,
    }
    assert math.copysign(1, result["nll"]) == 1  # 0.0, not -0.0


def test_certain_and_wrong_is_worst():
    result = metrics.summary(np.eye(3), [1, 2, 0])
    assert result == {
        "accuracy": 0.0,
        "nll": math.inf,
        "brier": 2.0,
        "ece": 1.0,
        "misclassification_ece": 1.0,
    }


def test_summary_holds_every_metric_when_right_and_wrong_occur():
    probs, targets = random_problem(2)
    expected = {m.__name__: m(probs, targets) for m in PROBABILITY_METRICS}
    expected["misclassification_auroc"] = metrics.misclassification_auroc(probs, targets)
    assert metrics.summary(probs, targets) == expected


@pytest.mark.parametrize("targets", [[0, 1], [1, 0]])
def test_misclassification_auroc_of_one_kind_is_refused(targets):
    with pytest.raises(ConfigError, match=r"at least one right and one wrong prediction, got [02]"):
        metrics.misclassification_auroc(np.eye(2), targets)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_tensors_of_every_float_dtype_are_accepted(dtype, device):
    # A leaf that requires grad, on the device: metrics must not care.
    logits = torch.tensor(np.log(random_problem(3)[0]), device=device)
    probs = logits.softmax(1).to(dtype).requires_grad_()
    targets = torch.tensor(random_problem(3)[1], device=device, dtype=torch.int32)
    as_array = probs.detach().cpu().double().numpy()
    assert metrics.brier(probs, targets) == pytest.approx(
        naive_brier(as_array, targets.tolist()), rel=1e-12
    )


def test_rounding_outside_zero_and_one_is_cut():
    probs = np.array([[1 + 1e-7, -1e-9]])
    assert metrics.nll(probs, [0]) == 0.0
    assert metrics.brier(probs, [0]) == 0.0
    assert probs[0, 0] == 1 + 1e-7  # the caller's array is not touched


BAD_PROBS = {
    "empty": (np.zeros((0, 3)), "at least one value"),
    "no classes": (np.zeros((3, 0)), "at least one value"),
    "one column": (np.array([0.2, 0.8, 1.0]), r"shape \(n, classes\), got \(3,\); .*\(1-p, p\)"),
    "three axes": (np.full((2, 3, 2), 0.5), r"got \(2, 3, 2\)"),
    "nan": (np.array([[1, 0], [np.nan, 0.5], [1, 0]]), r"finite, got nan at \(1, 0\) and 1 such"),
    "inf": (np.array([[1, 0], [np.inf, 0.5], [1, 0]]), r"finite, got inf at \(1, 0\)"),
    "logits": (np.array([[3.0, -2], [1, 0], [0, 1]]), "from -2 to 3; if these are logits"),
    "row sum": (np.array([[1, 0], [0.5, 0.4], [0, 1]]), r"sum to 1 .* got 0.9 in row \(1,\)"),
    "bool": (np.eye(3, dtype=bool), "dtype bool"),
    "complex": (np.eye(3, dtype=complex), "dtype complex128"),
    "complex tensor": (torch.eye(3, dtype=torch.complex64), "dtype torch.complex64"),
    "text": (np.array([["a", "b"]]), "real numbers, got dtype <U1"),
    "ragged": ([[0.5, 0.5], [1.0]], "rectangular"),
}


@pytest.mark.parametrize("case", BAD_PROBS)
@pytest.mark.parametrize("metric", [*PROBABILITY_METRICS, metrics.misclassification_auroc])
def test_bad_probabilities_are_refused(metric, case):
    probs, message = BAD_PROBS[case]
    with pytest.raises(ConfigError, match=message):
        metric(probs, [0, 1, 0])
    with pytest.raises(ConfigError, match=message):
        metrics.predictive_entropy(probs)


BAD_TARGETS = {
    "short": ([0, 1], r"shape \(3,\), one class index per row of probs, got \(2,\)"),
    "empty": ([], r"got \(0,\)"),
    "one-hot": (np.eye(3, dtype=int), r"got \(3, 3\); one-hot"),
    "from one": ([1, 2, 3], "between 0 and 2 for 3 classes, got values from 1 to 3"),
    "ignored": ([0, -100, 1], "from -100 to 1; count classes from 0 and drop ignored rows"),
    "floats": ([0.0, 1.0, 2.0], "integers, got dtype float64"),
    "nan": ([0.0, np.nan, 2.0], "integers, got dtype float64"),
    "float tensor": (torch.zeros(3, dtype=torch.bfloat16), "integers, got dtype float64"),
    "text": (["a", "b", "c"], "integers, got dtype <U1"),
}


@pytest.mark.parametrize("case", BAD_TARGETS)
@pytest.mark.parametrize("metric", [*PROBABILITY_METRICS, metrics.misclassification_auroc])
def test_bad_targets_are_refused(metric, case):
    targets, message = BAD_TARGETS[case]
    with pytest.raises(ConfigError, match=message):
        metric(np.eye(3), targets)


@pytest.mark.parametrize("metric", [metrics.auroc, metrics.aupr, metrics.fpr95])
@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        ([], [1.0], "scores_in must hold at least one value"),
        ([1.0], [], "scores_out must hold at least one value"),
        ([1.0, np.nan], [1.0], r"scores_in must be free of NaN, got nan at \(1,\)"),
        ([[1.0]], [1.0], r"scores_in must have shape \(n,\), got \(1, 1\)$"),
        ([1.0], [True], "scores_out must hold real numbers, got dtype bool"),
    ],
)
def test_bad_scores_are_refused(metric, inside, outside, message):
    with pytest.raises(ConfigError, match=message):
        metric(inside, outside)


def test_bad_options_are_refused():
    probs, targets = random_problem(0)
    with pytest.raises(ConfigError, match=r"binning must be one of 'width', 'mass', got .*'size'"):
        metrics.ece(probs, targets, binning="size")
    with pytest.raises(ConfigError, match="bins must be a whole number of at least 1, got bins=0"):
        metrics.ece(probs, targets, bins=0)
    with pytest.raises(ConfigError, match="positive must be one of 'out', 'in', got positive=1"):
        metrics.aupr([0.0], [1.0], positive=1)
    with pytest.raises(ConfigError, match=r"\(samples, n, classes\), got \(60, 4\)"):
        metrics.mutual_information(probs)
    with pytest.raises(ConfigError, match=r"level must be .* less than 1, got level=95"):
        metrics.coverage([0.0], [1.0], [0.0], level=95)


def test_bad_regression_input_is_refused():
    with pytest.raises(ConfigError, match=r"targets .* shape of mean, \(3,\), got \(3, 1\)"):
        metrics.rmse(np.zeros(3), np.zeros((3, 1)))  # broadcasting would give a 3×3 table
    with pytest.raises(ConfigError, match="mean must hold at least one value"):
        metrics.rmse([], [])
    with pytest.raises(ConfigError, match=r"targets must be finite, got inf at \(0,\)"):
        metrics.rmse([0.0], [np.inf])
    with pytest.raises(ConfigError, match="variance must be greater than 0, got 0; pass exp"):
        metrics.gaussian_nll([0.0], [0.0], [0.0])
    with pytest.raises(ConfigError, match="std must be at least 0, got -1"):
        metrics.coverage([0.0], [-1.0], [0.0])


def test_regression_edges_have_values():
    assert metrics.coverage([1.0, 1.0], [0.0, 0.0], [1.0, 2.0]) == 0.5
    assert metrics.rmse([1e200], [-1e200]) == 2e200
    assert metrics.rmse([1e308], [-1e308]) == math.inf
    assert metrics.rmse([1.0, 2.0], [1.0, 2.0]) == 0.0
    assert metrics.gaussian_nll([1e308], [1e-300], [-1e308]) == math.inf
