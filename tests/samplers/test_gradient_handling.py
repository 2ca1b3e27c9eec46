"""Every sampler in low precision, other layouts, with clipped, accumulated and scaled gradients."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from battery import CASES, NOISY
from entropy_mcmc import SGLD
from small_training import batch, make_closure, network, seeded, train, weights

every = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@every
def test_bfloat16_keeps_float32_variables(case, device):
    net = network(device, torch.bfloat16)
    sampler = case.make(net.parameters(), **seeded(case))
    train(net, sampler, 3)
    state = sampler.state_dict()
    for p in net.parameters():
        assert {v.dtype for v in sampler.state[p].values()} == {torch.float32}
        assert torch.equal(p.detach(), sampler.state[p]["master"].bfloat16())
    fresh = network(device, torch.bfloat16)
    second = case.make(fresh.parameters(), **seeded(case))
    second.load_state_dict(state)
    for p, q in zip(net.parameters(), fresh.parameters(), strict=True):
        for name, value in sampler.state[p].items():
            assert torch.equal(second.state[q][name], value)


@every
def test_channels_last_parameters_have_the_same_chain(case):
    chains = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        param = nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=memory_format))
        sampler = case.make([param], **seeded(case))

        def closure(param=param):
            param.grad = torch.sin(param.detach())
            return param.detach().sum()

        for _ in range(3):
            sampler.step(closure)
        chains.append(param.detach().contiguous())
    torch.testing.assert_close(chains[0], chains[1], rtol=1e-6, atol=1e-6)


def noise_of(case, change):
    """θ after one step with noise minus θ after it without, under the same gradients."""
    results = []
    for temperature in (case.options["temperature"], 0.0):
        net = network(dtype=torch.float64)
        sampler = case.make(net.parameters(), seed=1, temperature=temperature)
        change(net, sampler)
        results.append(weights(net))
    return results[0] - results[1]


ONE_GRADIENT = [case for case in NOISY if not (case.closure or case.adapts)]


def plain(net, sampler):
    train(net, sampler, 1)


def clipped(net, sampler):
    make_closure(net, sampler, batch())()
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    sampler.step()


def accumulated(net, sampler):
    sampler.zero_grad()
    for x, y in zip(*(part.split(4) for part in batch()), strict=True):
        (F.cross_entropy(net(x.double()), y) / 4).backward()
    sampler.step()


def scaled(net, sampler):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x, y = batch()
    sampler.zero_grad()
    scaler.scale(F.cross_entropy(net(x.double()), y)).backward()
    scaler.step(sampler)
    scaler.update()


@pytest.mark.parametrize("case", ONE_GRADIENT, ids=lambda c: c.name)
@pytest.mark.parametrize("change", [clipped, accumulated, scaled], ids=lambda f: f.__name__)
def test_gradient_handling_leaves_the_noise_alone(case, change):
    torch.testing.assert_close(noise_of(case, change), noise_of(case, plain), rtol=0, atol=1e-12)


def test_a_skipped_amp_step_does_not_advance_the_chain():
    net = network()
    sampler = SGLD(net.parameters(), lr=0.1, num_data=10, seed=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x, y = batch()
    scaler.scale(F.cross_entropy(net(x), y)).backward()
    net[0].weight.grad[0, 0] = float("inf")
    before = weights(net)
    scaler.step(sampler)
    scaler.update()
    assert torch.equal(weights(net), before)
    assert sampler.param_groups[0]["step"] == 0


@every
def test_autocast_training_loop(case, device):
    net = network(device)
    sampler = case.make(net.parameters(), **seeded(case))
    x, y = batch(device)

    def closure():
        sampler.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        sampler.step(closure)
    assert weights(net).isfinite().all()
