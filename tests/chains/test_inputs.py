"""What `chains.run` takes, and what it refuses with the value, the range and the remedy."""

import numpy as np
import pytest
import torch

from entropy_mcmc import chains
from entropy_mcmc.errors import ConfigError


def bowl(theta):
    return theta.square().sum() / 2


QUICK = {"steps": 5, "lr": 0.1, "num_data": 1, "eta": 0.5, "seed": 0}


def test_a_scalar_parameter():
    """Alone, as a number, and among others: the chain is that of a vector of one element."""
    wanted = chains.run(bowl, torch.ones(1), chains=2, **QUICK).theta
    for start in (torch.tensor(1.0), 1.0, 1, np.float32(1.0)):
        draws = chains.run(bowl, start, chains=2, **QUICK).theta
        assert draws.shape == (2, 5)
        assert torch.equal(draws, wanted[..., 0])
    both = {"scale": torch.tensor(1.0), "mean": torch.zeros(3)}
    draws = chains.run(lambda t: bowl(t["mean"] - t["scale"]), both, chains=2, **QUICK).theta
    assert draws["scale"].shape == (2, 5)
    assert draws["mean"].shape == (2, 5, 3)


def test_arrays_are_taken_like_tensors():
    x = np.random.default_rng(0).standard_normal((50, 2))
    frozen = x.copy()
    frozen.flags.writeable = False
    common = {**QUICK, "num_data": 50, "batch_size": 4}

    def energy(theta, rows):
        return (theta - rows).square().sum(1).mean()

    wanted = chains.run(energy, torch.zeros(3, 2).double(), data=(torch.from_numpy(x),), **common)
    for array in (x, x[::-1][::-1], frozen):
        draws = chains.run(energy, np.zeros((3, 2)), data=(array,), **common)
        assert draws.theta.dtype == torch.float64
        assert torch.equal(draws.theta, wanted.theta)


@pytest.mark.parametrize(
    ("init", "match"),
    [
        (torch.zeros(2, dtype=torch.int64), "float32 or float64.*int64"),
        (np.zeros(2, dtype=np.int32), "float32 or float64.*int32"),
        (torch.zeros(2, dtype=torch.bfloat16), "float32 or float64.*bfloat16"),
        (torch.zeros(2, dtype=torch.complex64), "float32 or float64.*complex64"),
        (1j, "float32 or float64.*complex128"),
        (True, "float32 or float64.*bool"),
        ("zero", "tensor, an array or a number, got str"),
        ({}, "at least one tensor"),
        ({"a": torch.zeros(2), "b": torch.zeros(2).double()}, "b.*dtype of init.'a'"),
    ],
)
def test_starts_that_cannot_be_sampled_are_refused(init, match):
    with pytest.raises(ConfigError, match=match):
        chains.run(lambda t: t, init, chains=2, **QUICK)


@pytest.mark.parametrize(
    "init", [torch.tensor(0.0), 0.0, {"a": torch.zeros(2, 3), "b": torch.zeros(3, 3)}]
)
def test_starts_of_several_chains_have_a_leading_dimension(init):
    with pytest.raises(ConfigError, match=r"leading dimension of .*pass chains="):
        chains.run(bowl, init, **QUICK)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (torch.zeros(5, 1), "tuple of tensors, got Tensor.*data=\\(x, y\\)"),
        ((torch.zeros(5, 1), torch.zeros(4)), "equal first dimensions.*\\(4,\\)"),
        ((torch.tensor(1.0),), "equal first dimensions"),
        ((torch.zeros(5, 1, dtype=torch.complex64),), "real, got torch.complex64"),
        ((torch.zeros(4, 1),), "num_data must be .*4, got num_data=5; leave it out"),
    ],
)
def test_bad_data_are_refused(data, match):
    call = {**QUICK, "num_data": 5, "chains": 2}
    with pytest.raises(ConfigError, match=match):
        chains.run(lambda t, *rows: t.square().sum(), torch.zeros(1), data=data, **call)


def test_num_data_is_that_of_the_data():
    x, given = torch.arange(5.0)[:, None], {**QUICK, "chains": 2, "num_data": 5}
    implied = {name: value for name, value in given.items() if name != "num_data"}
    draws = [
        chains.run(lambda t, rows: (t - rows).square().mean(), torch.zeros(1), data=(x,), **call)
        for call in (given, implied)
    ]
    assert torch.equal(draws[0].theta, draws[1].theta)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"temprature": 0.5}, "'temprature' is no setting of EntropyMCMC.*mean 'temperature'"),
        ({"sampler": "sgld", "eta": 0.5}, "'eta' is no setting of SGLD.*known are"),
        ({"fused": True}, "'fused' is no setting"),
        ({"eta": None}, "eta"),
        ({"num_data": None}, "num_data=len\\(train_set\\)"),
    ],
)
def test_misspelt_and_missing_settings_are_named(changes, match):
    call = {k: v for k, v in {**QUICK, "chains": 2, **changes}.items() if v is not None}
    with pytest.raises(ConfigError, match=match):
        chains.run(bowl, torch.zeros(1), **call)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sampler": "hmc"}, "sampler"),
        ({"steps": 0}, "steps"),
        ({"steps": 5, "burn_in": 5}, "burn_in"),
        ({"eta": 0.01}, "eta"),
        ({"batch_size": 3}, "batch_size"),
        ({"chains": 2**22 + 1}, "2\\*\\*22"),
        ({"lr": -1.0}, "lr"),
    ],
)
def test_bad_calls_are_refused(changes, match):
    call = {"steps": 5, "lr": 0.1, "num_data": 1, "eta": 0.5, "chains": 2, **changes}
    with pytest.raises(ConfigError, match=match):
        chains.run(lambda t: t.square().sum(), torch.zeros(1), **call)


def test_a_module_without_a_loss_is_refused():
    with pytest.raises(ConfigError, match="loss="):
        chains.run(torch.nn.Linear(2, 1), steps=5, lr=0.1, num_data=1, eta=0.5)
