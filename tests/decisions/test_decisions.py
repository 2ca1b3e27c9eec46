"""Temperature scaling and abstention, against naive versions and known distributions."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from entropy_mcmc import metrics
from entropy_mcmc.decisions import Abstention, TemperatureScaling
from entropy_mcmc.decisions.abstention import upper_bound
from entropy_mcmc.errors import ConfigError, DamagedFileError, MissingFileError


def drawn(rows, temperature=1.0, classes=4, seed=0):
    """Probabilities, and labels drawn from them at a temperature: that is what a fit must find."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 2
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    true = np.exp(logits / temperature) / np.exp(logits / temperature).sum(1, keepdims=True)
    return probs, (true.cumsum(1) > rng.random((rows, 1))).argmax(1)


def scaled(probs, temperature):
    powers = [[p ** (1 / temperature) for p in row] for row in probs.tolist()]
    return np.array([[p / sum(row) for p in row] for row in powers])


def test_the_temperature_is_that_of_lowest_nll():
    probs, labels = drawn(400, 1.7)
    scaling = TemperatureScaling.fit(probs, labels)
    grid = np.geomspace(0.5, 5, 400)
    best = min(grid, key=lambda t: metrics.nll(scaled(probs, t), labels))
    assert scaling.temperature == pytest.approx(best, rel=0.01)
    assert scaling(probs) == pytest.approx(scaled(probs, scaling.temperature), abs=1e-12)
    assert scaling.nll_before == pytest.approx(metrics.nll(probs, labels), rel=1e-6)
    assert scaling.nll_after == pytest.approx(metrics.nll(scaling(probs), labels), rel=1e-6)
    assert scaling.nll_after <= scaling.nll_before


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_of_the_labels_is_found(temperature):
    # Information of 1/τ per row is the variance of the log-probability; 5 standard errors, 1e-6.
    probs, labels = drawn(20_000, temperature, seed=3)
    scaling = TemperatureScaling.fit(probs, labels)
    true = scaled(probs, temperature)
    logs = np.log(probs)
    information = ((true * logs**2).sum(1) - (true * logs).sum(1) ** 2).sum()
    assert abs(1 / scaling.temperature - 1 / temperature) < 5 / math.sqrt(information)


def test_the_most_probable_class_stays():
    probs, labels = drawn(300, 3.0)
    scaling = TemperatureScaling.fit(probs, labels)
    assert (scaling(probs).argmax(1) == probs.argmax(1)).all()
    assert scaling(torch.tensor(probs)) == pytest.approx(scaling(probs))


def test_a_probability_of_zero_is_no_infinity():
    probs, labels = drawn(500)
    probs[0], labels[0] = [1.0, 0.0, 0.0, 0.0], 1
    scaling = TemperatureScaling.fit(probs, labels)
    assert np.isfinite(scaling.nll_after)
    assert np.isfinite(scaling(probs)).all()


@pytest.mark.parametrize("labels", [[0, 1, 0], [1, 0, 1]])
def test_rows_that_determine_no_temperature_are_refused(labels):
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    with pytest.raises(ConfigError, match="predicted right"):
        TemperatureScaling.fit(probs, labels)


def test_strings_as_targets_are_refused_in_words():
    with pytest.raises(ConfigError, match="targets must hold integers"):
        TemperatureScaling.fit(np.full((2, 2), 0.5), ["cat", "dog"])
    with pytest.raises(ConfigError, match="targets must hold integers"):
        Abstention.fit(np.full((2, 2), 0.5), ["cat", "dog"], risk=0.1)


@pytest.mark.parametrize(("errors", "answered"), [(0, 10), (3, 10), (9, 10), (40, 5000)])
@pytest.mark.parametrize("delta", [0.05, 0.0025])
def test_the_bound_solves_its_equation(errors, answered, delta):
    bound = upper_bound(errors, answered, delta)
    assert binom.cdf(errors, answered, bound) == pytest.approx(delta, rel=1e-6)
    assert upper_bound(answered, answered, delta) == 1.0
    assert upper_bound(0, 0, delta) == 1.0


def test_the_rule_is_the_largest_certified_level_of_a_naive_search():
    probs, labels = drawn(600, 1.3, seed=5)
    rule = Abstention.fit(probs, labels, risk=0.2, delta=0.1, levels=12)
    confidence, wrong = probs.max(1), probs.argmax(1) != labels
    certified = []
    for level in range(1, 13):
        above = 0.0 if level == 12 else sorted(confidence, reverse=True)[600 * level // 12]
        taken = [bool(w) for c, w in zip(confidence, wrong, strict=True) if c > above]
        if upper_bound(sum(taken), len(taken), 0.1 / 12) <= 0.2:
            certified.append((len(taken), sum(taken), above))
    assert (rule.answered, rule.errors, rule.threshold) == max(certified)
    assert 0 < rule.coverage < 1
    assert rule.answers(probs).sum() == rule.answered


def test_the_promise_holds_with_its_probability():
    """Confidence c is uniform on (½, 1) and c² is right: R(τ) = 1 − (1 + τ + τ²)/3.

    The promise may fail in a share delta = 0.2 of validation sets. With 400 sets, 4.5 standard
    errors above 0.2 is 0.29 (false alarm below 1e-5). The risk is just below that of the second
    level, R(0.75) = 0.229, so that failures are as frequent as they can be there. The plug-in
    rule, which takes the threshold whose observed error rate is below the risk, fails in about
    half of the sets.
    """
    rng = np.random.default_rng(7)
    risk, sets, rows = 0.225, 400, 400
    failed = plugged = silent = 0
    for _ in range(sets):
        confidence = rng.uniform(0.5, 1, rows)
        labels = (rng.random(rows) > confidence**2).astype(int)  # class 0 is predicted
        probs = np.stack([confidence, 1 - confidence], axis=1)
        try:
            rule = Abstention.fit(probs, labels, risk=risk, delta=0.2, levels=4)
            failed += true_risk(rule.threshold) > risk
        except ConfigError:
            silent += 1
        order = np.argsort(-confidence)
        rates = labels[order].cumsum() / np.arange(1, rows + 1)
        plugged += true_risk(confidence[order[np.flatnonzero(rates <= risk)[-1]]]) > risk
    assert 0 < failed / sets < 0.29
    assert plugged / sets > 0.35
    assert silent / sets < 0.4


def true_risk(threshold):
    low = max(threshold, 0.5)
    return 1 - (1 + low + low**2) / 3


def test_one_level_fails_as_often_as_its_binomial_says():
    """The exact failure rate at a true risk just above the promise, summed over outcomes."""
    rows, risk, delta = 200, 0.05, 0.1
    certified = [k for k in range(rows + 1) if upper_bound(k, rows, delta) <= risk]
    exact = binom.cdf(max(certified), rows, risk)
    assert 0.03 < exact <= delta
    assert binom.cdf(max(certified) + 1, rows, risk) > delta  # one more would break the promise


def test_too_few_rows_are_said():
    probs = np.tile([0.9, 0.1], (50, 1))
    with pytest.raises(ConfigError, match="it takes 597 answered rows"):
        Abstention.fit(probs, np.zeros(50, int), risk=0.01)


def test_equal_confidences_are_answered_together_or_not_at_all():
    probs = np.repeat([[0.95, 0.05], [0.6, 0.4]], 500, axis=0)
    labels = np.array([0] * 500 + [0, 1] * 250)
    rule = Abstention.fit(probs, labels, risk=0.05)
    assert (rule.answered, rule.errors) == (500, 0)
    assert rule.answers([[0.6, 0.4], [0.61, 0.39]]).tolist() == [False, True]


@pytest.mark.parametrize("options", [{"risk": 0.0}, {"risk": 1.5}, {"risk": 0.1, "delta": 0}])
def test_rates_out_of_range(options):
    with pytest.raises(ConfigError, match="greater than 0 and less than 1"):
        Abstention.fit(np.full((2, 2), 0.5), [0, 1], **options)


def made():
    probs, labels = drawn(400, 1.4, seed=2)
    return TemperatureScaling.fit(probs, labels), Abstention.fit(probs, labels, risk=0.5)


def test_json_keeps_every_bit(tmp_path):
    for one in made():
        path = tmp_path / "rule.json"
        one.save(path)
        assert type(one).load(path) == one
        assert json.loads(path.read_text())["kind"] == one.kind
        str(one)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-5],
        lambda text: "[1, 2]",
        lambda text: "[" * 5000,
        lambda text: text.replace("temperature scaling", "abstention"),
        lambda text: text.replace('"rows": 400', '"rows": "400"'),
        lambda text: text.replace('"rows": 400', '"rows": true'),
        lambda text: text.replace('"rows": 400', '"row": 400'),
        lambda text: text.replace('"temperature": ', '"temperature": -'),
        lambda text: text.replace('"rows": 400', '"rows": 1e999'),
    ],
)
def test_a_damaged_file_is_one_error(tmp_path, change):
    path = tmp_path / "scaling.json"
    text = made()[0].to_json()
    path.write_text(change(text))
    assert change(text) != text
    with pytest.raises(DamagedFileError, match="fit and save it again"):
        TemperatureScaling.load(path)
    with pytest.raises(MissingFileError, match="is not there"):
        TemperatureScaling.load(tmp_path / "none.json")
