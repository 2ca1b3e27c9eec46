"""A small network, its mini-batches and a training loop, for tests of samplers."""

import torch
from torch import nn
from torch.nn import functional as F

from entropy_mcmc import SAM


def seeded(case, seed=1):
    return {} if case.sampler is SAM else {"seed": seed}


def network(device="cpu", dtype=torch.float32):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return net.to(device=device, dtype=dtype)


def batch(device="cpu", step=0):
    g = torch.Generator().manual_seed(step)
    return (
        torch.randn(16, 4, generator=g).to(device),
        torch.randint(0, 3, (16,), generator=g).to(device),
    )


def make_closure(net, sampler, data, post=lambda: None):
    def closure():
        sampler.zero_grad()
        weight = next(net.parameters())
        loss = F.cross_entropy(net(data[0].to(weight.dtype)).float(), data[1])
        loss.backward()
        post()
        return loss

    return closure


def train(net, sampler, steps, start=0, post=lambda: None):
    device = next(net.parameters()).device
    losses = []
    for step in range(start, start + steps):
        closure = make_closure(net, sampler, batch(device, step), post)
        losses.append(sampler.step(closure).item())
    return losses


def weights(net):
    return torch.cat([p.detach().flatten().double().cpu() for p in net.parameters()])
