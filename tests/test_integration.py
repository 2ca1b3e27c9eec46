"""The README's loop with the real parts: sampler, schedule, posterior, batch norm, predictive."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from entropy_mcmc import EntropyMCMC, Posterior, metrics, schedules
from entropy_mcmc.errors import StateError


def data():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 1, 6, 6, generator=g)
    return x, (x.mean((1, 2, 3)) > 0).long()


def model(dtype):
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    ).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_from_loop_to_prediction(dtype, tmp_path):
    x, y = data()
    loader = [(x[i : i + 16].to(dtype), y[i : i + 16]) for i in range(0, 64, 16)]
    net = model(dtype)
    sampler = EntropyMCMC(net.parameters(), lr=0.4, num_data=64, eta=0.05, temperature=1e-3, seed=0)
    cycle = schedules.Cyclical(sampler, total_steps=80, cycles=2, burn_in=0.5, samples_per_cycle=2)
    posterior = Posterior.create(tmp_path / "run", net)
    kept = []
    for _ in range(20):
        for inputs, targets in loader:
            loss = F.cross_entropy(net(inputs).float(), targets)
            sampler.zero_grad()
            loss.backward()
            sampler.step()
            if cycle.step():
                posterior.collect(sampler)
                for p in net.parameters():
                    theta = sampler.state[p].get("master", p)
                    kept.append((theta.detach().clone(), sampler.state[p]["guide"].clone()))
                posterior.collect(sampler)  # a second call for the same step changes nothing
    assert len(posterior) == 8
    assert posterior.roles.count("theta") == posterior.roles.count("guide") == 4

    # What is stored is θ and θ_a as the chain had them, in the chain's own precision.
    names = [name for name, _ in net.named_parameters()]
    for sample in range(4):
        theta, guide = posterior[2 * sample], posterior[2 * sample + 1]
        for (t, a), name in zip(kept[6 * sample : 6 * sample + 6], names, strict=True):
            assert torch.equal(theta[name], t)
            assert torch.equal(guide[name], a)

    with pytest.raises(StateError, match="refresh_batchnorm"):
        posterior.predict_proba(x.to(dtype))
    before = [p.detach().clone() for p in net.parameters()]
    posterior.refresh_batchnorm(loader)
    probs = posterior.predict_proba(x.to(dtype))
    assert probs.shape == (64, 2)
    assert metrics.accuracy(probs, y) > 0.8
    for p, b in zip(net.parameters(), before, strict=True):
        assert torch.equal(p.detach(), b)

    again = Posterior.open(tmp_path / "run", model(dtype))
    torch.testing.assert_close(again.predict_proba(x.to(dtype)), probs)
