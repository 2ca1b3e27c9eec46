"""Units: each conversion against its definition, and the prior stated by its variance."""

import pytest
import torch

from battery import CASES
from entropy_mcmc import SGLD, units
from entropy_mcmc.errors import ConfigError

every = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def parameter(size=3):
    return torch.nn.Parameter(torch.ones(size))


def without_decay(case, **changes):
    options = {k: v for k, v in case.options.items() if k != "weight_decay"}
    return {"num_data": 10, **options, **changes}


def test_conversions_are_inverse_to_each_other():
    lr, num_data, eta = 0.3, 700, 2e-3
    steps = units.horizon(lr, num_data, eta)
    assert steps == pytest.approx(1 / units.coupling(lr, num_data, eta))
    assert units.eta_of_horizon(steps, lr, num_data) == pytest.approx(eta)
    full = units.lr_of_full_pull(eta, num_data)
    assert units.coupling(full, num_data, eta) == pytest.approx(1)
    decay = units.weight_decay(0.04, num_data)
    assert units.prior_variance(decay, num_data) == pytest.approx(0.04)


def test_the_paper_s_prior():
    """λ = 5e-4 at N = 50,000 is a variance of 0.04; at N = 1,000 the same prior has λ = 0.025."""
    assert units.prior_variance(5e-4, 50_000) == pytest.approx(0.04)
    assert units.weight_decay(0.04, 1_000) == pytest.approx(0.025)


def test_the_variance_of_a_chain_on_a_flat_loss_is_the_prior_s():
    """θ at stationarity: v/(1 − lr·λ/2), 20,000 coordinates, ± 4 standard errors (1 in 16,000)."""
    theta = parameter(20_000)
    sampler = SGLD([theta], lr=4.0, num_data=100, prior_variance=0.2, seed=3)
    assert sampler.param_groups[0]["weight_decay"] == pytest.approx(0.05)
    for _ in range(60):
        theta.grad = torch.zeros_like(theta)
        sampler.step()
    expected = 0.2 / (1 - 4.0 * 0.05 / 2)
    assert float(theta.detach().var()) == pytest.approx(expected, rel=4 * (2 / 20_000) ** 0.5)


@every
def test_a_prior_variance_is_kept_as_the_weight_decay(case):
    given = case.sampler([parameter()], **without_decay(case, prior_variance=0.5))
    plain = case.sampler([parameter()], **without_decay(case, weight_decay=1 / (10 * 0.5)))
    kept, expected = (
        {k: v for k, v in s.param_groups[0].items() if k not in ("params", "seed")}
        for s in (given, plain)
    )
    assert kept == expected
    assert "prior_variance" not in given.defaults
    old = plain.state_dict()
    given.load_state_dict(old)
    assert given.param_groups[0]["weight_decay"] == 0.2


@every
def test_groups_have_priors_of_their_own(case):
    options = without_decay(case, weight_decay=0.3)
    groups = [
        {"params": [parameter()]},
        {"params": [parameter()], "prior_variance": 0.5},
        {"params": [parameter()], "prior_variance": 0.5, "num_data": 20},
    ]
    sampler = case.sampler(groups, **options)
    sampler.add_param_group({"params": [parameter()], "prior_variance": 0.25})
    decays = [group["weight_decay"] for group in sampler.param_groups]
    assert decays == [0.3, 0.2, 0.1, 0.4]
    assert not any("prior_variance" in group for group in sampler.param_groups)


@every
def test_bad_priors_are_refused(case):
    options = without_decay(case)
    with pytest.raises(ConfigError, match=r"prior_variance=0.5 and weight_decay=0.1; give one"):
        case.sampler([parameter()], **options, prior_variance=0.5, weight_decay=0.1)
    with pytest.raises(ConfigError, match="prior_variance must be greater than 0, got"):
        case.sampler([parameter()], **options, prior_variance=-1.0)
    group = {"params": [parameter()], "prior_variance": 1.0, "weight_decay": 0.2}
    with pytest.raises(ConfigError, match="give one of them"):
        case.sampler([group], **options)
    without = {k: v for k, v in options.items() if k != "num_data"}
    with pytest.raises(ConfigError, match="num_data"):
        case.sampler([parameter()], **without, prior_variance=1.0)
