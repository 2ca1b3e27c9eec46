"""What users give as data, weights, loss and seed: measures take it, or say what is wrong."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError, EntropyMCMCError, NonFiniteError
from entropy_mcmc.flatness.input_checks import check_mean
from entropy_mcmc.flatness.learning_coefficient import estimate

LEARNING = flatness.LocalSampling(steps=12, chains=2, batch_size=16)
SETTINGS = flatness.Settings(
    eigenvalues=1, probes=2, lanczos_steps=4, directions=1, distances=(0.0, 1.0), learning=LEARNING
)


def states(model):
    """Three states that span a plane."""
    own = model.state_dict()
    draws = torch.Generator().manual_seed(0)
    moved = [{k: v + torch.randn(v.shape, generator=draws) for k, v in own.items()} for _ in "ab"]
    return [own, *moved]


def line_between(model, loss, data):
    start, end, _ = states(model)
    return flatness.interpolate_between(model, loss, data, start, end, fractions=(0, 1)).loss


MEASURES = {
    "learning coefficient": lambda *given: estimate(*given, LEARNING).value,
    "products": lambda model, loss, data: flatness.hessian_products(
        model, loss, data, torch.ones(1, sum(p.numel() for p in model.parameters()))
    ).numpy(),
    "eigenvalues": lambda *given: flatness.top_eigenvalues(*given, 1),
    "trace": lambda *given: flatness.hessian_trace(*given, probes=2).value,
    "density": lambda *given: flatness.spectral_density(*given, probes=1, steps=4).nodes,
    "fisher": lambda *given: flatness.fisher_diagonal(*given).variance.numpy(),
    "sharpness": lambda *given: flatness.sam_sharpness(*given, steps=1).ascent,
    "lines": lambda *given: flatness.interpolate_random(*given, (0.0, 1.0), directions=1).loss,
    "line between": line_between,
    "surface": lambda model, loss, data: (
        flatness.loss_surface(model, loss, data, states(model), resolution=2).loss
    ),
    "entropy": lambda *given: (
        flatness.local_entropy(*given, num_data=40, eta=1e-4, samples=3).value
    ),
    "compare": lambda model, loss, data: flatness.compare(
        model,
        loss,
        data,
        {"mine": model.state_dict()},
        hessian_data=data,
        test=data,
        error=lambda output, target: output.mean() + target[-1].nan_to_num().sum(),
        settings=SETTINGS,
    ).records(),
}
measures = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
# Every row is a batch of its own there, of which the sum is the mean.
of_batches = pytest.mark.parametrize(
    "measure",
    [call for name, call in MEASURES.items() if name != "fisher"],
    ids=[name for name in MEASURES if name != "fisher"],
)


class Given:
    """A network, and 40 rows of data in single precision."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.x, self.y = torch.randn(40, 3), torch.randint(0, 2, (40,))


@pytest.fixture
def given():
    return Given()


@measures
def test_arrays_and_data_sets_are_tensors(given, measure):
    """Float64 and int32, as NumPy and pandas have them; a read-only array, too."""
    x, y = given.x.double().numpy(), given.y.int().numpy()
    x.flags.writeable = False
    expected = measure(given.model, F.cross_entropy, (given.x, given.y))
    for data in ((x, y), [x, given.y], TensorDataset(given.x, given.y)):
        np.testing.assert_equal(measure(given.model, F.cross_entropy, data), expected)


@measures
def test_loaders_and_batches_of_arrays_are_batches(given, measure):
    batches = list(zip(given.x.split(16), given.y.split(16), strict=True))
    expected = measure(given.model, F.cross_entropy, batches)
    arrays = [(x.numpy(), y.numpy()) for x, y in batches]
    loader = DataLoader(TensorDataset(given.x, given.y), batch_size=16)
    for data in (arrays, loader):
        np.testing.assert_equal(measure(given.model, F.cross_entropy, data), expected)


def test_arrays_take_the_dtype_of_the_model(given):
    x, y = given.x.numpy(), given.y.numpy()
    model = given.model.double()
    expected = flatness.fisher_diagonal(model, F.cross_entropy, (given.x.double(), given.y))
    got = flatness.fisher_diagonal(model, F.cross_entropy, (x, y))
    assert torch.equal(got.variance, expected.variance)


def test_subset_takes_the_same(given):
    expected = flatness.subset((given.x, given.y), 5)
    for data in ((given.x.numpy(), given.y.numpy()), TensorDataset(given.x, given.y)):
        got = flatness.subset(data, 5)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    with pytest.raises(ConfigError, match=r"must be \(x, y\), got DataLoader"):
        flatness.subset(DataLoader(TensorDataset(given.x, given.y)), 5)


WRONG = {
    "three tensors": (lambda x, y: (x, y, y), "got a Tensor|got Tensor"),
    "a data set of three": (lambda x, y: TensorDataset(x, y, y), "a TensorDataset of 3"),
    "a data set of its own kind": (
        lambda x, y: torch.utils.data.Subset(TensorDataset(x, y), range(9)),
        "got Subset; .*a DataLoader",
    ),
    "one tensor": (lambda x, y: x, "got Tensor"),
    "dictionaries": (lambda x, y: [{"x": x, "y": y}], "a batch .* got dict"),
    "batches of three": (lambda x, y: [(x, y, y)], "a tuple of Tensor, Tensor, Tensor"),
    "lists of numbers": (lambda x, y: (x.tolist(), y.tolist()), "a batch .* got a list of list"),
    "nothing": (lambda x, y: None, "got NoneType"),
    "single rows": (
        lambda x, y: DataLoader(TensorDataset(x, y), batch_size=None),
        "y must have rows.*batch_size",
    ),
    "words": (lambda x, y: (x, np.array(["a"] * len(x), dtype=object)), "y must hold numbers"),
    "unequal": (lambda x, y: (x, y[1:]), "equally long, got 40 and 39"),
    "unequal batches": (lambda x, y: [(x, y[1:])], "equally long, got 40 and 39"),
    "no rows": (lambda x, y: (x[:0], y[:0]), "at least one sample"),
    "no batches": (lambda x, y: [], "at least one sample"),
    "a generator": (lambda x, y: (pair for pair in [(x, y)]), "more than once, got generator"),
}


@measures
def test_other_data_are_refused(given, measure):
    for make, words in WRONG.values():
        with pytest.raises(ConfigError, match=words):
            measure(given.model, F.cross_entropy, make(given.x, given.y))


@measures
def test_the_place_of_a_nan_in_the_data_is_named(given, measure):
    given.x[33, 1] = torch.nan
    with pytest.raises(ConfigError, match="finite, got nan in row 33 of x"):
        measure(given.model, F.cross_entropy, (given.x, given.y))
    loader = DataLoader(TensorDataset(given.x, given.y), batch_size=16)
    with pytest.raises(ConfigError, match="finite, got nan in row 1 of batch 2 of x"):
        measure(given.model, F.cross_entropy, loader)
    target = torch.randn(40, 2)
    target[7] = torch.inf
    with pytest.raises(ConfigError, match="finite, got inf in row 7 of y"):
        measure(given.model, F.mse_loss, (torch.randn(40, 3), target))


@measures
def test_the_weight_that_is_nan_is_named(given, measure):
    given.model[2].bias.data[1] = torch.nan
    with pytest.raises(NonFiniteError, match=r"finite weights.* 1 of the 2 of '2.bias'"):
        measure(given.model, F.cross_entropy, (given.x, given.y))


def test_the_state_with_a_nan_is_named(given):
    """The model's own weights are not measured, and may be anything."""
    state = {k: v.clone() for k, v in given.model.state_dict().items()}
    bad = {**state, "0.bias": torch.full((4,), torch.nan)}
    given.model.load_state_dict(bad)
    args = given.model, F.cross_entropy, (given.x, given.y)
    with pytest.raises(NonFiniteError, match=r"state 'b' must have finite weights.*'0.bias'"):
        flatness.compare(*args, {"a": state, "b": bad}, settings=SETTINGS)
    with pytest.raises(NonFiniteError, match=r"a state must have finite weights.*'0.bias'"):
        flatness.interpolate_between(*args, state, bad)
    assert flatness.compare(*args, {"a": state}, settings=SETTINGS).rows[0].trace != 0


def test_a_loss_that_is_nan_for_another_reason_is_said_to_be(given):
    """The slope of a root at 0: no NaN in data, weights or loss."""

    def root(output, target):
        return (output * 0).abs().sqrt().mean()

    with pytest.raises(NonFiniteError, match=r"the Hessian is NaN.*a root at 0"):
        flatness.hessian_trace(given.model, root, (given.x, given.y))
    with pytest.raises(NonFiniteError, match=r"the loss is NaN.*a logarithm of 0"):
        estimate(given.model, lambda o, y: (o * 0).log().mean(), (given.x, given.y), LEARNING)


@of_batches
def test_missing_targets_that_the_loss_leaves_out_are_data(given, measure):
    """NaN is refused only where it spoils the measure."""

    def masked(output, target):
        known = target.isfinite()
        gap = output - target.where(known, output)
        return gap.square().sum() / known.sum()

    target = torch.randn(40, 2)
    target[::3, 0] = torch.nan
    measure(given.model, masked, (given.x, target))


@of_batches
@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(reduction="sum"), nn.MSELoss(reduction="sum")]
)
def test_a_sum_over_the_rows_is_refused(given, measure, loss):
    target = given.y if isinstance(loss, nn.CrossEntropyLoss) else torch.randn(40, 2)
    with pytest.raises(ConfigError, match='the same rows twice; use reduction="mean"'):
        measure(given.model, loss, (given.x, target))


@of_batches
def test_a_loss_for_each_row_is_refused(given, measure):
    with pytest.raises(ConfigError, match=r'got shape \(\d+,\); use reduction="mean"'):
        measure(given.model, nn.CrossEntropyLoss(reduction="none"), (given.x, given.y))


def test_the_fisher_diagonal_is_that_of_a_sum(given):
    args = given.model, (given.x, given.y)
    mean = flatness.fisher_diagonal(args[0], F.cross_entropy, args[1])
    total = flatness.fisher_diagonal(args[0], nn.CrossEntropyLoss(reduction="sum"), args[1])
    torch.testing.assert_close(total.variance, mean.variance)


def trace(model, loss, data):
    return flatness.hessian_trace(model, loss, data, probes=2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_sum_is_seen_where_the_network_fits_exactly(given, dtype):
    """Its loss is 0, as a mean's is."""
    model, x = given.model.to(dtype), given.x.to(dtype)
    y = model(x).detach()
    trace(model, F.mse_loss, (x, y))
    for rows in (2, 40):
        with pytest.raises(ConfigError, match="got a sum"):
            trace(model, nn.MSELoss(reduction="sum"), (x[:rows], y[:rows]))


def contrastive(output, target):
    """In-batch negatives: grows with the rows, but as their logarithm."""
    unit = F.normalize(output, dim=1)
    return F.cross_entropy(unit @ unit.T, torch.arange(len(output)))


MEANS = {
    "weighted": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0])),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
    "sum over outputs": lambda o, y: (o - 1e3).square().sum(1).mean(),
    "a mean of its own": lambda o, y: (o[:, 0] - y).abs().sum() / len(y),
    "with a penalty": lambda o, y: F.cross_entropy(o, y) + 1e6,
    "negative": lambda o, y: -F.log_softmax(o, 1)[:, 0].mean() - 5,
    "nearly nothing": lambda o, y: o.square().mean() * 1e-30,
    "a constant": lambda o, y: (o * 0).sum() + 3,
    "zero": lambda o, y: (o * 0).sum(),
    "contrastive": contrastive,
    "one number of rows": lambda o, y: F.cross_entropy(o.view(40, 2), y),
    "shape (1,)": lambda o, y: F.cross_entropy(o, y).reshape(1),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("loss", MEANS.values(), ids=MEANS)
def test_other_losses_raise_no_false_alarm(given, loss, dtype):
    model, x = given.model.to(dtype), given.x.to(dtype)
    if isinstance(loss, nn.CrossEntropyLoss) and loss.weight is not None:
        loss = nn.CrossEntropyLoss(weight=loss.weight.to(dtype))
    trace(model, loss, (x, given.y))


def test_random_losses_raise_no_false_alarm(given):
    """Noise as large as the loss, some of which looks like the growth of a sum."""
    draws = torch.Generator().manual_seed(0)

    def noisy(output, target):
        return F.cross_entropy(output, target) * torch.rand((), generator=draws)

    for _ in range(2000):
        check_mean(given.model, noisy, (given.x, given.y))


SEEDED = {
    "learning coefficient": lambda *given: flatness.LocalSampling(seed=given[-1]).seed,
    "table": lambda *given: flatness.Settings(seed=given[-1]).seed,
    "trace": lambda m, lo, d, seed: flatness.hessian_trace(m, lo, d, probes=2, seed=seed).value,
    "density": lambda m, lo, d, seed: flatness.spectral_density(
        m, lo, d, probes=1, steps=4, seed=seed
    ).nodes[0],
    "lines": lambda m, lo, d, seed: flatness.interpolate_random(
        m, lo, d, (0.5,), directions=1, seed=seed
    ).loss.item(),
    "entropy": lambda m, lo, d, seed: (
        flatness.local_entropy(m, lo, d, num_data=40, eta=1e-2, samples=3, seed=seed).value
    ),
    "subset": lambda m, lo, d, seed: flatness.subset(d, 20, seed=seed)[0].sum().item(),
}


@pytest.mark.parametrize("measure", SEEDED.values(), ids=SEEDED)
def test_no_seed_draws_one_from_torch(given, measure):
    args = given.model, F.cross_entropy, (given.x, given.y), None
    torch.manual_seed(5)
    first, second = measure(*args), measure(*args)
    torch.manual_seed(5)
    assert measure(*args) == first
    assert second != first


def test_estimates_without_a_seed(given):
    options = {"steps": 12, "chains": 2, "seed": None}
    args = given.model, F.cross_entropy, (given.x, given.y)
    torch.manual_seed(5)
    sampling = flatness.LocalSampling(**options)
    torch.manual_seed(5)
    with pytest.warns(UserWarning, match="not trustworthy"):
        got = flatness.local_learning_coefficient(*args, **options)
    assert got == estimate(*args, sampling)  # the seed is kept
    flatness.top_eigenvalues(*args, 1, seed=None)


def test_every_error_is_one_of_the_library():
    assert issubclass(NonFiniteError, EntropyMCMCError)
    assert issubclass(ConfigError, ValueError)
