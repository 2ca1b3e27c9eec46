"""Subsets of a posterior, and posteriors merged, against the samples they were made of."""

import pytest
import torch
from torch import nn

from entropy_mcmc import EntropyMCMC
from entropy_mcmc.errors import ConfigError, DamagedFileError, StateError
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.posterior.manifest import STRIDE

X = torch.randn(7, 2, generator=torch.Generator().manual_seed(0))


def collected(path, steps=3, seed=0, chains=1, **options):
    """A store of θ and θ_a at each step."""
    torch.manual_seed(seed)
    model = nn.Linear(2, 3)
    sampler = EntropyMCMC(model.parameters(), lr=0.1, num_data=10, eta=1.0, seed=seed)
    posterior = Posterior.create(path, model, **options)
    for chain in range(chains):
        for step in range(steps):
            model(X).square().mean().backward()
            sampler.step()
            posterior.collect(sampler, step=chain * STRIDE + step, cycle=0, chain=chain)
    posterior.close()
    return posterior


def weights(posterior):
    return torch.stack([state["weight"] for state in posterior])


def test_a_subset_predicts_with_its_samples_only(tmp_path):
    posterior = collected(tmp_path / "a")
    each = posterior.sample_predictions(X)
    for choice, numbers in (
        ([0, 3], [0, 3]),
        ([-1], [5]),
        (range(0, 6, 2), [0, 2, 4]),
        (slice(4, None), [4, 5]),
        (lambda sample: sample.role == "guide", [1, 3, 5]),
    ):
        part = posterior.subset(choice)
        assert len(part) == len(numbers)
        torch.testing.assert_close(part.predict_proba(X), each[numbers].mean(0))
        assert torch.equal(part[0]["weight"], posterior[numbers[0]]["weight"])


def test_a_subset_stays_what_it_was_while_the_posterior_grows(tmp_path):
    posterior = Posterior.create(tmp_path / "a", nn.Linear(2, 3))
    posterior.collect()
    part = posterior.subset([0])
    posterior.collect()
    assert (len(part), len(posterior)) == (1, 2)
    with pytest.raises(StateError, match="subset of its samples"):
        part.collect()


def test_a_subset_of_a_subset(tmp_path):
    posterior = collected(tmp_path / "a")
    part = posterior.subset(range(1, 6)).subset([0, 2])
    assert [s.key for s in part.samples] == [posterior.samples[i].key for i in (1, 3)]


@pytest.mark.parametrize("choice", [[], [6], [-7], lambda sample: False, slice(3, 3)])
def test_what_is_not_there_cannot_be_chosen(tmp_path, choice):
    posterior = collected(tmp_path / "a")
    with pytest.raises(ConfigError, match="sample"):
        posterior.subset(choice)


def test_merged_posteriors_predict_with_all_samples(tmp_path):
    parts = [collected(tmp_path / f"{i}", seed=i, steps=2, chains=1 + i) for i in range(3)]
    merged = Posterior.merge(tmp_path / "all", parts)
    assert torch.equal(weights(merged), torch.cat([weights(part) for part in parts]))
    assert [s.chain for s in merged.samples] == [c for c in range(6) for _ in range(4)]
    assert merged.verify() == 24
    expected = torch.cat([part.sample_predictions(X) for part in parts]).mean(0)
    torch.testing.assert_close(merged.predict_proba(X), expected)
    merged.close()
    again = Posterior.open(tmp_path / "all", nn.Linear(2, 3))
    torch.testing.assert_close(again.predict_proba(X), expected)


def test_a_merged_subset_is_a_copy_that_can_be_moved(tmp_path):
    posterior = collected(tmp_path / "a")
    copy = Posterior.merge(tmp_path / "b", [posterior.subset([1, 2])])
    copy.close()
    (tmp_path / "a").rename(tmp_path / "gone")
    assert copy.roles == ("guide", "theta")
    moved = Posterior.open(tmp_path / "gone", nn.Linear(2, 3))
    assert torch.equal(weights(copy), weights(moved)[1:3])


def test_what_nobody_samples_is_still_stored_once(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 50), nn.Linear(50, 3))
    parts = []
    for i in range(2):
        head = torch.optim.SGD(model[1].parameters(), lr=0.1)
        posterior = Posterior.create(tmp_path / f"{i}", model)
        for step in range(2):
            nn.init.normal_(model[1].weight)
            posterior.collect(head, step=step)
        parts.append(posterior)
    merged = Posterior.merge(tmp_path / "all", parts)
    assert len(list((tmp_path / "all/samples").glob("shared-*"))) == 1
    assert len(merged) == 4
    expected = torch.cat([part.sample_predictions(X) for part in parts]).mean(0)
    torch.testing.assert_close(merged.predict_proba(X), expected)


def test_fresh_batch_norm_statistics_are_kept(tmp_path):
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3))
    posterior = Posterior.create(tmp_path / "a", model)
    posterior.collect()
    posterior.refresh_batchnorm([X])
    merged = Posterior.merge(tmp_path / "b", [posterior])
    assert merged.samples[0].batchnorm == "fresh"
    torch.testing.assert_close(merged.predict_proba(X), posterior.predict_proba(X))


def test_refusals_leave_nothing(tmp_path):
    posterior = collected(tmp_path / "a")
    other = Posterior.create(tmp_path / "b", nn.Linear(2, 4))
    other.collect()
    values = Posterior.create(tmp_path / "c", nn.Linear(2, 1), likelihood="regression")
    values.collect()
    for parts, words in (
        ([], "at least one posterior"),
        ([posterior, other], "does not fit the model"),
        ([posterior, values], "one likelihood"),
    ):
        with pytest.raises(ConfigError, match=words):
            Posterior.merge(tmp_path / "new", parts)
        assert not (tmp_path / "new/samples").exists()


def test_a_damaged_sample_is_an_error_or_left_out(tmp_path):
    posterior = collected(tmp_path / "a")
    file = tmp_path / "a/samples" / posterior.samples[2].file.name
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    fresh = Posterior.open(tmp_path / "a", nn.Linear(2, 3))
    with pytest.raises(DamagedFileError, match=file.name):
        Posterior.merge(tmp_path / "new", [fresh])
    lenient = Posterior.open(tmp_path / "a", nn.Linear(2, 3), skip_damaged=True)
    with pytest.warns(RuntimeWarning, match="left out 1 of 6"):
        merged = Posterior.merge(tmp_path / "new", [lenient])
    assert len(merged) == 5
