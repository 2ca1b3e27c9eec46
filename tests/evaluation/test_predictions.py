"""Streamed predictions against naive ones that hold everything, and what is kept of them."""

import pytest
import torch
from torch import nn

from entropy_mcmc import metrics
from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.evaluation import (
    KeptSamples,
    Predictions,
    average_over_samples,
    detection_scores,
    evaluation_sets,
    prediction_scores,
)
from entropy_mcmc.evaluation.sets import compared_rows, shown_rows
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run.training_batches import dataset_of

ROWS = 700  # three batches of 256


def sampled(path, model, likelihood="classification", count=4):
    posterior = Posterior.create(path, model, likelihood)
    torch.manual_seed(0)
    sampler = _WithGuide(model.parameters(), lr=0.1)
    for step in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
        posterior.collect(sampler, step=step, cycle=step // 2, chain=step % 2)
    return posterior


class _WithGuide(torch.optim.SGD):
    def guide(self):
        from contextlib import contextmanager

        @contextmanager
        def swapped():
            params = self.param_groups[0]["params"]
            with torch.no_grad():
                for p in params:
                    p.mul_(2)
            yield
            with torch.no_grad():
                for p in params:
                    p.div_(2)

        return swapped()


def images(rows=ROWS):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(rows, 1, 4, 4, generator=generator)
    return dataset_of(inputs, torch.arange(rows) % 3)


def classifier(width=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 3))


def made(posterior, test, limit=50, **options):
    sets = evaluation_sets(test, test, prepare=lambda x: x, limit=limit, **options)
    return Predictions(posterior, sets)


@pytest.mark.parametrize("width", [8, 2000])  # many samples at once, and one after another
def test_averages_and_kept_rows_are_those_of_all_predictions(tmp_path, width):
    posterior, test = sampled(tmp_path / "a", classifier(width)), images()
    each = posterior.sample_predictions(test.inputs)
    whole = made(posterior, test).whole("test")
    roles = posterior.roles
    assert [s.role for s in whole.samples] == list(roles)
    assert [(s.chain, s.cycle) for s in whole.samples[::2]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    for role in ("both", "theta", "guide"):
        own = [i for i, name in enumerate(roles) if role in ("both", name)]
        torch.testing.assert_close(whole.probabilities(role), each[own].mean(0))
        assert whole.count(role) == len(own)
    for rows in (shown_rows(ROWS, 50), compared_rows(ROWS)):
        torch.testing.assert_close(whole.at(rows), each[:, rows])
    assert whole.each.shape[1] <= 150
    with pytest.raises(StateError, match="not kept"):
        whole.at(torch.arange(ROWS))


def test_some_rows_are_predicted_alone_or_taken_from_the_whole(tmp_path):
    posterior, test = sampled(tmp_path / "a", classifier()), images()
    rows = shown_rows(ROWS, 50)
    few, all_rows = made(posterior, test), made(posterior, test)
    alone = few.some("test")
    assert not alone.complete
    assert all_rows.whole("test") is all_rows.some("test")
    torch.testing.assert_close(alone.at(rows), all_rows.some("test").at(rows))
    alone_ood, whole_ood = few.some("ood:shuffled"), all_rows.whole("ood:shuffled")
    torch.testing.assert_close(alone_ood.probabilities_at_rows(), whole_ood.probabilities_at_rows())
    assert whole_ood.each is None
    assert few.whole("test").complete  # asked for later, it is made


def test_every_set_is_read_once(tmp_path, monkeypatch):
    posterior, test = sampled(tmp_path / "a", classifier()), images()
    calls = []
    stream = posterior.stream_predictions
    monkeypatch.setattr(
        posterior, "stream_predictions", lambda x: (calls.append(len(x)), stream(x))[1]
    )
    predictions = made(posterior, test)
    for _ in range(2):
        predictions.whole("test")
        predictions.some("test")
        predictions.whole("ood:shuffled")
    assert calls == [ROWS, ROWS]


def test_batches_are_predicted_as_they_come(tmp_path):
    posterior, test = sampled(tmp_path / "a", classifier()), images(90)
    batches = [(test.inputs[i : i + 32], test.targets[i : i + 32]) for i in range(0, 90, 32)]
    predictions = made(posterior, batches, limit=40)
    assert predictions.names == ("test",)
    expected = posterior.sample_predictions(test.inputs)
    torch.testing.assert_close(predictions.some("test").each, expected[:, :40])
    torch.testing.assert_close(predictions.whole("test").probabilities(), expected.mean(0))
    assert torch.equal(predictions.targets("test"), test.targets)
    short = made(posterior, batches, limit=200)
    assert short.whole("test").rows.tolist() == list(range(90))
    assert short.some("test").at(torch.arange(90)).shape[1] == 90


def test_regression_is_the_mixture_and_scores_are_the_metrics(tmp_path):
    posterior = sampled(tmp_path / "a", nn.Linear(5, 2), "regression")
    x, y = torch.randn(300, 5), torch.randn(300)
    test = dataset_of(x, y)
    predictions = made(posterior, test)
    assert predictions.names == ("test",)
    expected = posterior.predict_distribution(x)
    average = predictions.whole("test").averages["both"]
    torch.testing.assert_close(average.mean, expected.mean)
    torch.testing.assert_close(average.variance, expected.variance)
    scores = prediction_scores(average, y)
    assert scores["rmse"] == metrics.rmse(expected.mean, y)
    assert scores["nll"] == pytest.approx(metrics.gaussian_nll(expected.mean, expected.variance, y))
    with pytest.raises(StateError, match="regression"):
        predictions.whole("test").probabilities()


def test_a_mean_without_a_variance_is_kept_and_not_scored(tmp_path):
    posterior = sampled(tmp_path / "a", nn.Linear(5, 1), "regression")
    x = torch.randn(30, 5)
    whole = made(posterior, dataset_of(x, x[:, 0])).whole("test")
    assert whole.each.shape == (8, 30)
    with pytest.raises(ConfigError, match="mean only"):
        prediction_scores(whole.averages["both"], x[:, 0])


def test_kept_samples_stand_in_for_a_posterior(tmp_path):
    posterior, test = sampled(tmp_path / "a", classifier()), images()
    kept = KeptSamples(posterior, made(posterior, test).some("test"))
    rows = compared_rows(ROWS)
    for role in ("both", "theta", "guide"):
        torch.testing.assert_close(
            kept.sample_predictions(rows, roles=role, batch_size=7),
            posterior.sample_predictions(test.inputs[rows], roles=role),
        )
    assert kept.samples == posterior.samples
    assert kept.likelihood == "classification"
    assert kept.model is posterior.model
    assert torch.equal(kept[0]["1.weight"], posterior[0]["1.weight"])


def test_ood_is_the_positive_class():
    sure, unsure = [[0.99, 0.01]] * 3, [[0.5, 0.5]] * 2
    assert detection_scores(sure, unsure) == {"auroc": 1.0, "aupr": 1.0, "fpr95": 0.0}


def test_an_average_of_which_nothing_else_is_kept(tmp_path):
    posterior, test = sampled(tmp_path / "a", classifier()), images()
    torch.testing.assert_close(
        average_over_samples(posterior, test.inputs), posterior.predict_proba(test.inputs)
    )
