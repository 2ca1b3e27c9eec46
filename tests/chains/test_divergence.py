"""A chain that becomes NaN or infinite is named, with its step."""

import pytest
import torch

from entropy_mcmc import chains
from entropy_mcmc.chains import noise_and_batches, sampling
from entropy_mcmc.errors import NonFiniteError


@pytest.mark.parametrize("use", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("settings", [{"eta": 0.5}, {"sampler": "sghmc"}])
def test_a_chain_that_diverges_is_named(settings, use, monkeypatch):
    """Only chain 1 starts where the energy is steep; its first bad step is that of a plain loop."""
    monkeypatch.setattr(sampling, "UNROLL", 4)
    start = torch.tensor([0.1, 3.0, 0.1])[:, None]
    call = {"steps": 40, "lr": 0.1, "num_data": 1, "temperature": 0.0, "compile": use, **settings}
    theta, guide, velocity, first = start[1].clone(), start[1].clone(), torch.zeros(1), 0
    while theta.isfinite().all():
        before = theta
        push = 0.1 * 4 * theta**3
        if "eta" in settings:
            pull = 0.1 / 0.5 * (theta - guide)
            theta, guide = theta - push - pull, guide + pull
        else:
            velocity = 0.9 * velocity - push
            theta = theta + velocity
        first += 1
    message = rf"chain 1 .*step {first - 1};.*smaller lr.*lr=0.1"
    with pytest.raises(NonFiniteError, match=message) as caught:
        chains.run(lambda t: (t**4).sum(), start, **call)
    torch.testing.assert_close(caught.value.last, before)


def test_the_last_chain_of_the_last_block_is_looked_at(monkeypatch):
    """NaN in one row of the data, seen by the chain whose batch holds it."""
    monkeypatch.setattr(noise_and_batches, "BLOCK", 40)
    x = torch.zeros(50, 2)
    x[7] = float("nan")
    call = {"steps": 100, "lr": 0.1, "num_data": 50, "eta": 0.5, "seed": 0}
    call |= {"batch_size": 1, "chains": 3, "compile": False}
    with pytest.raises(NonFiniteError, match=r"chain \d became NaN or infinite at step"):
        chains.run(lambda t, rows: (t - rows).square().mean(), torch.zeros(2), data=(x,), **call)
