"""Every metric against a loop written from its definition, on random and adversarial inputs."""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from entropy_mcmc import metrics
from entropy_mcmc.errors import ConfigError

PROBABILITY_METRICS = [
    metrics.accuracy,
    metrics.nll,
    metrics.brier,
    metrics.ece,
    metrics.misclassification_ece,
]


def random_problem(seed, n=60, classes=4, sharpness=2.0):
    """Targets drawn from the rows: the gaps of the bins then have both signs, so binning matters."""
    generator = np.random.default_rng(seed)
    logits = sharpness * generator.normal(size=(n, classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probs, np.array([generator.choice(classes, p=row) for row in probs])


def tied_problem(seed, n=37, classes=3):
    """Few distinct confidences, on bin edges too, with probabilities 0 and 1 among them."""
    generator = np.random.default_rng(seed)
    rows = np.array([[1.0, 0, 0], [0, 0.8, 0.2], [0.4, 0.2, 0.4], [0.2, 0.2, 0.6], [0, 1, 0]])
    targets = generator.integers(classes, size=n)
    return rows[generator.integers(len(rows), size=n)], targets


PROBLEMS = [
    *(random_problem(seed) for seed in range(4)),
    *(random_problem(seed, n=7, sharpness=30.0) for seed in range(4, 7)),
    *(tied_problem(seed) for seed in range(7, 11)),
    (np.array([[0.25] * 4]), np.array([3])),
    (np.ones((3, 1)), np.zeros(3, dtype=int)),
]


# --- naive versions: plain Python, one example at a time -----------------------------------------


def naive_top(row):
    best = 0
    for index in range(len(row)):
        if row[index] > row[best]:
            best = index
    return best


def naive_accuracy(probs, targets):
    hits = [naive_top(row) == y for row, y in zip(probs, targets, strict=True)]
    return sum(hits) / len(hits)


def naive_nll(probs, targets):
    terms = [
        -math.log(row[y]) if row[y] > 0 else math.inf for row, y in zip(probs, targets, strict=True)
    ]
    return math.fsum(terms) / len(terms)


def naive_brier(probs, targets):
    return math.fsum(
        (p - (k == y)) ** 2
        for row, y in zip(probs, targets, strict=True)
        for k, p in enumerate(row)
    ) / len(targets)


def naive_ece_width(probs, targets, bins):
    total = 0.0
    for k in range(bins):
        low, high = k / bins, (k + 1) / bins
        gap = math.fsum(
            max(row) - (naive_top(row) == y)
            for row, y in zip(probs, targets, strict=True)
            if low < max(row) <= high
        )
        total += abs(gap)
    return total / len(targets)


def naive_ece_mass(probs, targets, bins):
    """Exact rational arithmetic; a tied row has the mean accuracy of the rows tied with it."""
    rows = sorted((float(max(r)), naive_top(r) == y) for r, y in zip(probs, targets, strict=True))
    n, total = len(rows), Fraction(0)
    for k in range(bins):
        gap = Fraction(0)
        for confidence, _ in rows[k * n // bins : (k + 1) * n // bins]:
            tied = [hit for other, hit in rows if other == confidence]
            gap += Fraction(confidence) - Fraction(sum(tied), len(tied))
        total += abs(gap)
    return float(total / n)


def naive_auroc(inside, outside):
    wins = sum((o > i) + 0.5 * (o == i) for o in outside for i in inside)
    return wins / (len(inside) * len(outside))


def naive_aupr(inside, outside, positive):
    """Σ (recall step)·precision over the distinct thresholds, strictest first."""
    yes, no = (
        (outside, inside) if positive == "out" else ([-s for s in inside], [-s for s in outside])
    )
    area, recall_before = 0.0, 0.0
    for threshold in sorted({*yes, *no}, reverse=True):
        hits = sum(s >= threshold for s in yes)
        alarms = sum(s >= threshold for s in no)
        area += (hits / len(yes) - recall_before) * hits / (hits + alarms)
        recall_before = hits / len(yes)
    return area


def naive_fpr95(inside, outside, positive):
    yes, no = (
        (outside, inside) if positive == "out" else ([-s for s in inside], [-s for s in outside])
    )
    rates = [
        sum(s >= threshold for s in no) / len(no)
        for threshold in {*yes, *no}
        if 20 * sum(s >= threshold for s in yes) >= 19 * len(yes)
    ]
    return min(rates)


def naive_entropy(row):
    return -math.fsum(p * math.log(p) for p in row if p > 0)


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
    reference = brier_score_loss(targets, probs, labels=labels, scale_by_half=False)
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


@pytest.mark.parametrize(("probs", "targets"), PROBLEMS[:7])
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


# --- edges ---------------------------------------------------------------------------------------


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
