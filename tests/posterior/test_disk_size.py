"""The size of a store, told before, against the files after."""

import pytest
import torch
from torch import nn

from entropy_mcmc import EntropyMCMC
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.posterior.disk_size import free_bytes
from entropy_mcmc.run.progress import tell_size


def written(posterior):
    return sum(path.stat().st_size for path in (posterior.path / "samples").glob("*.safetensors"))


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        ({}, 10),
        ({"roles": "guide"}, 5),
        ({"dtype": "bfloat16"}, 10),
        ({"thin": 2}, 6),
        ({"keep_last": 4}, 4),
    ],
)
@pytest.mark.parametrize("head_only", [False, True])
def test_the_size_is_that_of_the_files(tmp_path, options, samples, head_only):
    model = nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40), nn.Linear(40, 10))
    params = model[2].parameters() if head_only else model.parameters()
    sampler = EntropyMCMC(params, lr=0.1, num_data=10, eta=1.0, seed=0)
    posterior = Posterior.create(tmp_path / "a", model, **options)
    told = posterior.expected_size(5, sampler)
    for _ in range(5):
        model(torch.randn(4, 30)).square().mean().backward()
        sampler.step()
        posterior.collect(sampler)
    assert told.samples == len(posterior) == samples
    # Headers are estimated: within a tenth for files as small as these.
    assert told.total == pytest.approx(written(posterior), rel=0.1)
    assert (told.shared > 0) == head_only


def test_half_precision_parameters_are_stored_as_their_masters(tmp_path):
    model = nn.Linear(100, 100).bfloat16()
    sampler = EntropyMCMC(model.parameters(), lr=0.1, num_data=10, eta=1.0, seed=0)
    posterior = Posterior.create(tmp_path / "a", model)
    told = posterior.expected_size(1, sampler)
    model(torch.randn(4, 100).bfloat16()).float().square().mean().backward()
    sampler.step()
    posterior.collect(sampler)
    assert told.total == pytest.approx(written(posterior), rel=0.1)


def test_the_line_of_a_run(tmp_path, capsys):
    size = Posterior.create(tmp_path / "a", nn.Linear(2, 2)).expected_size(3)
    tell_size(tmp_path / "not there yet", size, shown=True)
    assert capsys.readouterr().err.startswith("on disk: 3 samples of ")
    tell_size(tmp_path, size, shown=False)
    assert capsys.readouterr().err == ""


def test_too_little_space_is_always_said(tmp_path, monkeypatch):
    size = Posterior.create(tmp_path / "a", nn.Linear(2, 2)).expected_size(3)
    assert free_bytes(tmp_path) > 0
    monkeypatch.setattr("entropy_mcmc.posterior.disk_size.free_bytes", lambda _: 10)
    with pytest.warns(RuntimeWarning, match="only 10 bytes are free"):
        tell_size(tmp_path, size, shown=False)
