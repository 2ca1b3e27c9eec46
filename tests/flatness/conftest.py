"""Small networks in double precision, so that dense computations are exact references."""

import pytest
import torch
from torch import nn


class Problem:
    """A small classifier, its loss and data."""

    def __init__(self, device, batchnorm=False):
        torch.manual_seed(0)
        norm = [nn.BatchNorm1d(4)] if batchnorm else []
        self.model = nn.Sequential(nn.Linear(3, 4), *norm, nn.Tanh(), nn.Linear(4, 3))
        self.model.to(device, torch.float64)
        self.loss = nn.functional.cross_entropy
        self.x = torch.randn(20, 3, dtype=torch.float64)
        self.y = torch.randint(0, 3, (20,))
        self.data = self.x, self.y
        if batchnorm:
            self.model(self.x.to(device))  # training mode: statistics differ from (0, 1)

    def flat_loss(self, flat):
        """Mean loss as a function of one flat vector, in evaluation mode."""
        names = dict(self.model.named_parameters())
        parts = torch.split(flat, [p.numel() for p in names.values()])
        params = {n: part.view_as(p) for (n, p), part in zip(names.items(), parts, strict=True)}
        mode = self.model.training
        self.model.eval()
        out = torch.func.functional_call(self.model, params, (self.x.to(flat.device),))
        self.model.train(mode)
        return self.loss(out, self.y.to(flat.device))

    def flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])

    def hessian(self):
        return torch.autograd.functional.hessian(self.flat_loss, self.flat())


@pytest.fixture(params=[False, True], ids=["plain", "batchnorm"])
def problem(request, device):
    return Problem(device, batchnorm=request.param)


@pytest.fixture
def plain(device):
    return Problem(device)


@pytest.fixture
def unchanged():
    """Check at the end that a model's tensors, gradients and modes are what they were."""
    watched = []

    def watch(model):
        state = {k: v.clone() for k, v in model.state_dict().items()}
        watched.append((model, state, [m.training for m in model.modules()]))

    yield watch
    assert watched
    for model, state, modes in watched:
        assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
        assert [m.training for m in model.modules()] == modes
        assert all(p.grad is None for p in model.parameters())
