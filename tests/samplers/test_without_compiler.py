"""Samplers skip the import of torch's compiler, and only that."""

import sys

import torch
from torch.optim import Optimizer

from entropy_mcmc import SGLD
from entropy_mcmc.samplers.kernel.without_compiler import without_compiler


def test_the_method_of_torch_where_the_compiler_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo", sys.modules.get("torch._dynamo", sys))
    assert without_compiler(Optimizer.zero_grad) is Optimizer.zero_grad


def test_zero_grad_is_that_of_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    weight = torch.nn.Parameter(torch.ones(2))
    sampler = SGLD([weight], lr=0.1, num_data=1, seed=0)
    for set_to_none in (False, True):
        weight.grad = torch.ones(2)
        sampler.zero_grad(set_to_none=set_to_none)
        assert (weight.grad is None) if set_to_none else weight.grad.tolist() == [0.0, 0.0]
