"""Every metric against a loop written from its definition, and its mathematical properties."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from entropy_mcmc import metrics
from naive_metrics import (
    PROBLEMS,
    naive_accuracy,
    naive_aupr,
    naive_auroc,
    naive_brier,
    naive_ece_mass,
    naive_ece_width,
    naive_entropy,
    naive_fpr95,
    naive_nll,
    naive_top,
    random_problem,
    tied_problem,
)

PROBABILITY_METRICS = [
    metrics.accuracy,
    metrics.nll,
    metrics.brier,
    metrics.ece,
    metrics.misclassification_ece,
]


# --- equality with the definitions ---------------------------------------------------------------


@pytest.mark.parametrize(("probs", "targets"), PROBLEMS)
def test_averages_equal_their_definition(probs, targets):
    assert metrics.accuracy(probs, targets) == naive_accuracy(probs, targets)
    assert metrics.nll(probs, targets) == pytest.approx(naive_nll(probs, targets), rel=1e-12)
    expected = naive_brier(probs, targets)
    assert metrics.brier(probs, targets) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("probs", "targets"), PROBLEMS)
@pytest.mark.parametrize("bins", [1, 2, 5, 10, 15, 100])
def test_ece_equals_its_definition(probs, targets, bins):
    width = metrics.ece(probs, targets, bins=bins)
    assert width == pytest.approx(naive_ece_width(probs, targets, bins), abs=1e-14)
    mass = metrics.ece(probs, targets, bins=bins, binning="mass")
    assert mass == pytest.approx(naive_ece_mass(probs, targets, bins), abs=1e-14)


def test_ece_defaults_are_15_wide_and_10_of_equal_mass():
    probs, targets = random_problem(0, n=500)
    assert metrics.ece(probs, targets) == metrics.ece(probs, targets, bins=15)
    equal_mass = metrics.ece(probs, targets, bins=10, binning="mass")
    assert metrics.ece(probs, targets, binning="mass") == equal_mass
    assert metrics.misclassification_ece(probs, targets) == equal_mass
    values = {metrics.ece(probs, targets, b, k) for b in (10, 15) for k in ("width", "mass")}
    assert len(values) == 4  # else the lines above could not tell the defaults apart


def test_equal_width_bins_are_closed_on_the_right():
    # 0.75 is exact: with 4 bins it belongs to (0.5, 0.75], together with 0.625.
    probs = np.array([[0.75, 0.25], [0.625, 0.375]])
    assert metrics.ece(probs, [1, 0], bins=4) == abs(0.75 - 0 + 0.625 - 1) / 2


def test_averages_equal_scikit_learn_away_from_the_edges():
    probs, targets = random_problem(1)
    labels = np.arange(4)
    assert metrics.accuracy(probs, targets) == accuracy_score(targets, probs.argmax(1))
    assert metrics.nll(probs, targets) == pytest.approx(log_loss(targets, probs, labels=labels))
    # One class against the rest: scikit-learn's own sum over classes is newer than our bound.
    reference = sum(brier_score_loss(targets == label, probs[:, label]) for label in labels)
    assert metrics.brier(probs, targets) == pytest.approx(reference, rel=1e-12)


SCORES = [
    *(
        (np.random.default_rng(s).normal(size=23), np.random.default_rng(99 + s).normal(1, 1, 41))
        for s in range(4)
    ),
    *(
        (
            np.random.default_rng(s).integers(4, size=30),
            np.random.default_rng(s + 9).integers(5, size=20),
        )
        for s in range(4)
    ),
    (np.zeros(3), np.zeros(5)),
    (np.arange(20), np.arange(20)),  # a ROC curve of collinear points, each of which counts
    (np.array([0.0]), np.array([1.0])),
    (np.array([1.0]), np.array([0.0])),
    (np.array([-np.inf, 0.0, np.inf]), np.array([np.inf, np.inf, -np.inf])),
    (np.array([1.0, 1.0 + 2e-16]), np.array([1.0, np.nextafter(1.0, 2.0)])),
]


@pytest.mark.parametrize(("inside", "outside"), SCORES)
def test_detection_metrics_equal_their_definition(inside, outside):
    assert metrics.auroc(inside, outside) == pytest.approx(naive_auroc(inside, outside), abs=1e-14)
    for positive in ("out", "in"):
        area = metrics.aupr(inside, outside, positive=positive)
        assert area == pytest.approx(naive_aupr(inside, outside, positive), abs=1e-14)
        rate = metrics.fpr95(inside, outside, positive=positive)
        assert rate == pytest.approx(naive_fpr95(inside, outside, positive), abs=1e-14)


def test_fpr95_needs_nineteen_of_twenty():
    outside = np.arange(20.0)  # scores 1..19 are 95 %, exactly
    assert metrics.fpr95([0.5, 0.6, 1.5], outside) == pytest.approx(1 / 3)


def test_aupr_depends_on_the_positive_class():
    inside, outside = [0.1] * 9, [0.1]
    assert metrics.aupr(inside, outside) == pytest.approx(0.1)
    assert metrics.aupr(inside, outside, positive="in") == pytest.approx(0.9)


@pytest.mark.parametrize(("probs", "targets"), PROBLEMS[:11])
def test_misclassification_auroc_ranks_right_above_wrong(probs, targets):
    right = [max(r) for r, y in zip(probs, targets, strict=True) if naive_top(r) == y]
    wrong = [max(r) for r, y in zip(probs, targets, strict=True) if naive_top(r) != y]
    assert right, "the problem must hold both kinds"
    assert wrong, "the problem must hold both kinds"
    value = metrics.misclassification_auroc(probs, targets)
    assert value == pytest.approx(naive_auroc(wrong, right), abs=1e-14)


@pytest.mark.parametrize(("probs", "targets"), PROBLEMS)
def test_entropy_equals_its_definition(probs, targets):
    expected = [naive_entropy(row) for row in probs]
    assert metrics.predictive_entropy(probs) == pytest.approx(expected, abs=1e-14)


def test_mutual_information_equals_its_definition():
    samples = np.stack([tied_problem(s)[0] for s in range(6)])
    expected = [
        naive_entropy(samples[:, i].mean(0))
        - np.mean([naive_entropy(row) for row in samples[:, i]])
        for i in range(samples.shape[1])
    ]
    assert metrics.mutual_information(samples) == pytest.approx(expected, abs=1e-14)


def test_mutual_information_of_equal_samples_is_never_below_zero():
    probs, _ = random_problem(0, n=500)
    values = metrics.mutual_information(np.stack([probs] * 7))
    assert ((values >= 0) & (values < 1e-14)).all()


def test_regression_metrics_equal_their_definition():
    generator = np.random.default_rng(5)
    mean, targets = generator.normal(size=(2, 200))
    std = generator.uniform(0.1, 2, size=200)
    triples = list(zip(mean, std, targets, strict=True))
    expected = math.fsum(-math.log(NormalDist(m, s).pdf(y)) for m, s, y in triples) / 200
    assert metrics.gaussian_nll(mean, std**2, targets) == pytest.approx(expected, rel=1e-10)
    expected = math.sqrt(math.fsum((m - y) ** 2 for m, _, y in triples) / 200)
    assert metrics.rmse(mean, targets) == pytest.approx(expected, rel=1e-12)
    for level in (0.5, 0.9, 0.95):
        inside = [abs(NormalDist(m, s).cdf(y) - 0.5) <= level / 2 for m, s, y in triples]
        assert metrics.coverage(mean, std, targets, level=level) == sum(inside) / 200


# --- properties ----------------------------------------------------------------------------------


@st.composite
def problems(draw):
    """Probabilities from small whole numbers: ties, zeros and ones are common."""
    n, classes = draw(st.integers(1, 25)), draw(st.integers(1, 5))
    weights = st.lists(st.integers(0, 3), min_size=classes, max_size=classes).filter(any)
    rows = np.array(draw(st.lists(weights, min_size=n, max_size=n)), dtype=float)
    targets = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    return rows / rows.sum(axis=1, keepdims=True), np.array(targets)


@settings(deadline=None, max_examples=150)
@given(problems(), st.integers(1, 30), st.randoms(use_true_random=False))
def test_order_of_the_examples_does_not_matter(problem, bins, random):
    probs, targets = problem
    order = random.sample(range(len(targets)), len(targets))
    for metric in PROBABILITY_METRICS:
        shuffled = metric(probs[order], targets[order])
        assert shuffled == pytest.approx(metric(probs, targets), abs=1e-12)
    for binning in ("width", "mass"):
        shuffled = metrics.ece(probs[order], targets[order], bins, binning)
        assert shuffled == pytest.approx(metrics.ece(probs, targets, bins, binning), abs=1e-12)


@settings(deadline=None, max_examples=150)
@given(problems())
def test_metrics_stay_within_their_bounds(problem):
    probs, targets = problem
    result = metrics.summary(probs, targets)
    upper = {"brier": 2.0, "nll": math.inf}
    for name, value in result.items():
        assert 0 <= value <= upper.get(name, 1.0) + 1e-12, name
    entropy = metrics.predictive_entropy(probs)
    assert ((entropy >= 0) & (entropy <= math.log(probs.shape[1]) + 1e-12)).all()


@settings(deadline=None, max_examples=100)
@given(problems(), st.integers(1, 6), st.randoms(use_true_random=False))
def test_mutual_information_is_bounded_and_blind_to_the_order_of_samples(problem, count, random):
    probs, _ = problem
    n, classes = probs.shape
    samples = np.stack([probs[random.sample(range(n), n)] for _ in range(count)])
    values = metrics.mutual_information(samples)
    assert ((values >= 0) & (values <= math.log(min(count, classes)) + 1e-12)).all()
    assert metrics.mutual_information(samples[::-1]) == pytest.approx(values, abs=1e-12)
    assert metrics.mutual_information(np.stack([probs] * count)) == pytest.approx(0, abs=1e-12)


score_lists = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=20)


@settings(deadline=None, max_examples=150)
@given(score_lists, score_lists)
def test_detection_depends_on_the_order_of_scores_only(inside, outside):
    def stretch(values):
        return [math.exp(value) for value in values]

    for metric in (metrics.auroc, metrics.aupr, metrics.fpr95):
        value = metric(inside, outside)
        assert 0 <= value <= 1
        assert metric(stretch(inside), stretch(outside)) == value
    swapped = metrics.auroc(outside, inside)
    assert swapped + metrics.auroc(inside, outside) == pytest.approx(1, abs=1e-12)


def tempered(logits, temperature):
    return torch.softmax(torch.tensor(logits) / temperature, dim=1).numpy()


@pytest.mark.parametrize("seed", range(5))
def test_temperature_limits(seed):
    generator = np.random.default_rng(seed)
    logits, targets = generator.normal(size=(200, 4)), generator.integers(4, size=200)
    accuracy = metrics.accuracy(tempered(logits, 1.0), targets)
    hot, cold = tempered(logits, 1e9), tempered(logits, 1e-9)
    # Hot: uniform rows. Nothing is known, and what is known is known exactly.
    assert metrics.nll(hot, targets) == pytest.approx(math.log(4), abs=1e-7)
    assert metrics.brier(hot, targets) == pytest.approx(0.75, abs=1e-7)
    assert metrics.predictive_entropy(hot) == pytest.approx(math.log(4), abs=1e-7)
    assert metrics.ece(hot, targets) == pytest.approx(abs(accuracy - 0.25), abs=1e-7)
    # Cold: certain rows. Every error costs all that it can.
    assert metrics.nll(cold, targets) == math.inf
    assert metrics.brier(cold, targets) == pytest.approx(2 * (1 - accuracy))
    assert metrics.ece(cold, targets) == pytest.approx(1 - accuracy)
    assert metrics.misclassification_ece(cold, targets) == pytest.approx(1 - accuracy)
    assert metrics.misclassification_auroc(cold, targets) == 0.5
    # Temperature never changes the order within a row.
    for probs in (hot, cold):
        assert metrics.accuracy(probs, targets) == pytest.approx(accuracy)
