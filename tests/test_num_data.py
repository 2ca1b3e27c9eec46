"""N where it is not obvious: N times the mean loss is −log of the likelihood of all the data."""

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal
from torch.nn import functional as F

from entropy_mcmc import SGLD

ROWS, CLASSES, LENGTH, LABELS, VIEWS = 12, 5, 7, 3, 4
LOGITS = torch.nn.Parameter(
    torch.randn(ROWS, LENGTH, CLASSES, generator=torch.Generator().manual_seed(0)).double()
)
TARGETS = torch.randint(0, CLASSES, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


def of_rows():
    loss = F.cross_entropy(LOGITS[:, 0], TARGETS[:, 0])
    return ROWS, loss, -Categorical(logits=LOGITS[:, 0]).log_prob(TARGETS[:, 0]).sum()


def of_augmented_rows():
    """One label for each row, whose views are shown in turn: every row counts once, by its mean."""
    labels = TARGETS[:, 0]
    loss = F.cross_entropy(LOGITS[:, :VIEWS].flatten(0, 1), labels.repeat_interleave(VIEWS))
    each = -Categorical(logits=LOGITS[:, :VIEWS]).log_prob(labels[:, None])
    return ROWS, loss, each.mean(1).sum()


def of_smoothed_labels():
    """Label y has weight 1 − ε + ε/K, each other ε/K: together one observation."""
    epsilon, labels = 0.1, TARGETS[:, 0]
    loss = F.cross_entropy(LOGITS[:, 0], labels, label_smoothing=epsilon)
    weights = torch.full((ROWS, CLASSES), epsilon / CLASSES, dtype=torch.float64)
    weights[torch.arange(ROWS), labels] += 1 - epsilon
    assert torch.allclose(weights.sum(1), torch.ones(ROWS).double())
    return ROWS, loss, -(weights * LOGITS[:, 0].log_softmax(1)).sum()


def of_weighted_classes():
    weights, labels = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0]).double(), TARGETS[:, 0]
    loss = F.cross_entropy(LOGITS[:, 0], labels, weight=weights)
    each = -Categorical(logits=LOGITS[:, 0]).log_prob(labels)
    return float(weights[labels].sum()), loss, (weights[labels] * each).sum()


def of_tokens():
    """Padding is not predicted."""
    counted = torch.arange(LENGTH) < torch.arange(1, ROWS + 1)[:, None]
    targets = torch.where(counted, TARGETS, -100)
    loss = F.cross_entropy(LOGITS.flatten(0, 1), targets.flatten())
    total = -Categorical(logits=LOGITS).log_prob(TARGETS)[counted].sum()
    return int((targets != -100).sum()), loss, total


def of_many_labels():
    scores, labels = LOGITS[:, 0, :LABELS], (TARGETS[:, :LABELS] > 2).double()
    loss = F.binary_cross_entropy_with_logits(scores, labels)
    return ROWS * LABELS, loss, -Bernoulli(logits=scores).log_prob(labels).sum()


def of_many_outputs():
    means, values = LOGITS[:, 0], LOGITS[:, 1]
    loss = F.gaussian_nll_loss(means, values, torch.ones_like(means), full=True)
    return ROWS * CLASSES, loss, -Normal(means, 1.0).log_prob(values).sum()


CASES = (
    of_rows, of_augmented_rows, of_smoothed_labels, of_weighted_classes, of_tokens,
    of_many_labels, of_many_outputs,
)  # fmt: skip


def gradient_of_the_energy(num_data, loss):
    """∇U that a chain follows with this N: how far one step without noise moves θ, over −α."""
    theta = torch.nn.Parameter(LOGITS.detach().clone())
    sampler = SGLD([theta], lr=0.5, num_data=num_data, temperature=0.0)
    theta.grad = gradient_of(loss)
    sampler.step()
    return (LOGITS - theta).detach() / sampler.explain().groups[0].step_size


def gradient_of(total):
    return torch.autograd.grad(total, LOGITS, retain_graph=True)[0]


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_a_step_follows_the_likelihood_of_all_the_data(case):
    num_data, loss, total = case()
    torch.testing.assert_close(num_data * loss, total)
    torch.testing.assert_close(gradient_of_the_energy(num_data, loss), gradient_of(total))


def test_a_sum_over_labels_has_the_same_energy_with_n_rows():
    scores, labels = LOGITS[:, 0, :LABELS], (TARGETS[:, :LABELS] > 2).double()
    mean = F.binary_cross_entropy_with_logits(scores, labels)
    summed = F.binary_cross_entropy_with_logits(scores, labels, reduction="none").sum(1).mean()
    ours = gradient_of_the_energy(ROWS, summed)
    torch.testing.assert_close(ours, gradient_of_the_energy(ROWS * LABELS, mean))


def test_mini_batches_of_different_lengths_need_the_average_number_of_tokens():
    """The mean of their means is not the mean over tokens; sums over the average number are."""
    each = F.cross_entropy(LOGITS.flatten(0, 1), TARGETS.flatten(), reduction="none")
    total, average = gradient_of(each.sum()), len(each) / 2
    energy = lambda part, length: gradient_of_the_energy(len(each), part.sum() / length)  # noqa: E731
    short, long = each[:10], each[10:]
    by_average = (energy(short, average) + energy(long, average)) / 2
    by_own_length = (energy(short, len(short)) + energy(long, len(long))) / 2
    torch.testing.assert_close(by_average, total)
    assert (by_own_length - total).abs().max() > 0.01


@pytest.mark.parametrize("labels", [1, 4])
def test_the_variance_of_a_multi_label_posterior(labels):
    """K Gaussian observations of one weight in each row: variance 1/(rows·K) needs N = rows·K.

    At the step size used, T/(h(1 − αh/2)) with h = rows·K; 20,000 chains, ± 4 standard errors
    (a false alarm once in 16,000).
    """
    rows, lr = 10, 0.2
    theta = torch.nn.Parameter(torch.zeros(20_000))
    sampler = SGLD([theta], lr=lr, num_data=rows * labels, seed=5)
    for _ in range(60):
        # The gradient of the mean over rows and labels of ½(θ − y)², with all y = 0.
        theta.grad = theta.detach().clone()
        sampler.step()
    expected = 1 / (rows * labels * (1 - lr / 2))
    spread = float(theta.detach().square().mean())
    assert spread == pytest.approx(expected, rel=4 * (2 / 20_000) ** 0.5)
