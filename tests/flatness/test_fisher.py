"""The Fisher diagonal against a loop over samples, its stability and its memory."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness import fisher_diagonal, fisher_histogram


def naive_gradients(problem):
    """One backward pass per sample, straight from the definition."""
    problem.model.eval()
    params = list(problem.model.parameters())
    device = params[0].device
    rows = []
    for x, y in zip(problem.x.to(device), problem.y.to(device), strict=True):
        loss = problem.loss(problem.model(x[None]), y[None])
        rows.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, params)]))
    problem.model.train()
    return torch.stack(rows)


@pytest.mark.parametrize("chunk", [None, 1, 7, 20])
def test_equals_a_loop_over_samples(problem, chunk, unchanged):
    rows = naive_gradients(problem)
    unchanged(problem.model)
    fisher = fisher_diagonal(problem.model, problem.loss, problem.data, chunk=chunk)
    assert fisher.count == 20
    torch.testing.assert_close(fisher.mean, rows.mean(0))
    torch.testing.assert_close(fisher.variance, rows.var(0, correction=0))


def test_batches_of_unequal_size_give_the_same(plain):
    whole = fisher_diagonal(plain.model, plain.loss, plain.data)
    loader = [(plain.x[:3], plain.y[:3]), (plain.x[3:], plain.y[3:])]
    parts = fisher_diagonal(plain.model, plain.loss, loader, chunk=8)
    torch.testing.assert_close(parts.variance, whole.variance)


def test_frozen_parameters_are_left_out(plain):
    whole = fisher_diagonal(plain.model, plain.loss, plain.data).named(plain.model)
    plain.model[0].requires_grad_(False)
    part = fisher_diagonal(plain.model, plain.loss, plain.data).named(plain.model)
    assert set(part) == {"2.weight", "2.bias"}
    torch.testing.assert_close(part["2.weight"], whole["2.weight"])


def test_a_large_mean_does_not_drown_a_small_variance(device):
    # Gradients are 1e4 + small: E g² − (E g)² in float32 would be pure rounding.
    model = nn.Linear(1, 1, bias=False).to(device)
    nn.init.zeros_(model.weight)
    y = 1e4 + torch.arange(256.0).reshape(-1, 1) / 8
    fisher = fisher_diagonal(
        model, lambda out, y: ((out - y) ** 2).mean() / 2, (torch.ones(256, 1), y), chunk=16
    )
    expected = y.double().var(correction=0)
    assert float(fisher.variance) == pytest.approx(float(expected), rel=1e-5)


class Stream:
    """Batches made when asked for: the data set itself takes no memory."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        for i in range(self.count):
            g = torch.Generator().manual_seed(i)
            yield torch.randn(16, 64, generator=g), torch.randint(0, 10, (16,), generator=g)


def peak_bytes(count):
    """Highest number of CPU bytes held at once, from the allocator's own events."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        fisher_diagonal(model, nn.functional.cross_entropy, Stream(count), chunk=16)
    events = [e for e in trace.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = torch.tensor([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())])
    return int(held.cumsum(0).max())


def test_memory_does_not_grow_with_the_data():
    peak_bytes(2)  # first use allocates caches
    small, large = peak_bytes(3), peak_bytes(60)
    per_sample = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert small > 16 * per_sample  # the measure does see the chunk's gradients
    # All gradients of the larger run would be 20 times as many; one sample's are the tolerance.
    assert large <= small + per_sample


def test_histogram_counts_every_parameter(plain):
    fisher = fisher_diagonal(plain.model, plain.loss, plain.data)
    counts, edges = fisher_histogram(fisher, bins=10, limit=float(fisher.variance.median()))
    assert counts.sum() == fisher.variance.numel()
    assert len(edges) == 11
    assert counts[-1] >= fisher.variance.numel() // 2


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "at least one sample"),
        (iter([]), "more than once"),
        ((torch.ones(3, 3), torch.ones(2)), "equally long"),
    ],
)
def test_bad_data_is_refused(plain, data, text):
    with pytest.raises(ConfigError, match=text):
        fisher_diagonal(plain.model, plain.loss, data)
