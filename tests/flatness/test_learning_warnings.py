"""What speaks against a learning coefficient is said, and bad options are refused."""

import math

import pytest
import torch
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError
from learning_references import half_square, of_population

WRONG = {
    "diverged": {"lr": 1e4},
    "shorter than": {"steps": 20},
    "too few": {"steps": 4, "chains": 1},
}


@pytest.mark.parametrize("words", WRONG)
def test_settings_that_fail_are_warned_about(plain, words):
    with pytest.warns(UserWarning, match=words):
        coefficient = flatness.local_learning_coefficient(
            plain.model, plain.loss, plain.data, **WRONG[words]
        )
    assert not coefficient.trustworthy
    assert f"not trustworthy: {coefficient.warnings[0]}" in str(coefficient)
    assert math.isnan(coefficient.value) == (words == "diverged")


def test_a_maximum_is_negative_and_left():
    """On −½w² inside a wide wall the chain runs outwards and the loss falls."""
    _, coefficient = of_population(
        lambda w: (-w.square() / 2 + w**4 / 8).sum(1),
        50,
        1,
        100,
        localisation=2.0,
        lr=0.02,
        steps=1500,
        chains=2,
    )
    text = " ".join(coefficient.warnings)
    assert "negative" in text
    assert "the chains left" in text


def test_chains_in_different_basins_have_not_mixed():
    """Between two deep wells, on an even crest: each chain stays in the one that it falls into."""
    _, coefficient = of_population(
        lambda w: 40 * torch.minimum((w + 1).square(), 2 * (w - 0.5).square() + 0.5).sum(1),
        1,
        1,
        100,
        localisation=0.01,
        lr=0.002,
        steps=100,
        chains=8,
    )
    assert "not mixed" in " ".join(coefficient.warnings)


def test_a_good_estimate_reads_well(recwarn):
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    x = torch.eye(2, dtype=torch.float64).repeat(50, 1)
    coefficient = flatness.local_learning_coefficient(
        model, half_square, (x, model(x).detach()), localisation=2.0, steps=1200, chains=2
    )
    assert not recwarn.list
    lines = str(coefficient).splitlines()
    assert lines[0].startswith(f"local learning coefficient {coefficient.value:.4g} ± ")
    assert "a regular model of 2 parameters: 1" in lines[0]
    assert f"R-hat {coefficient.rhat:.3f}" in lines[1]
    a = 100 / math.log(100) * 0.5  # nβh: each weight sees half of the rows
    for gamma in (0.5, 2, 8):  # the closed form of a quadratic, ½ Σ a/(a + γ)
        assert f"{a / (a + gamma):.3g} ± 0 at γ = {gamma}" in lines[3]
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"localisation": 0.0}, "localisation=0.0"),
        ({"lr": "best"}, "lr='best'"),
        ({"lr": -1.0}, "lr=-1.0"),
        ({"scale": "norm"}, "scale='norm'"),
        ({"scale": {"nothing": 1.0}}, "nothing"),
        ({"scale": {"0.bias": 0.0}}, "0.bias.*positive"),
        ({"scale": {"0.bias": torch.ones(3)}}, r"shape \(4,\)"),
        ({"burn_in": 2000}, "burn_in=2000"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"num_data": 1}, "num_data=1"),
        ({"chains": 0}, "chains=0"),
    ],
)
def test_bad_options_are_refused(plain, options, words):
    with pytest.raises(ConfigError, match=words):
        flatness.local_learning_coefficient(plain.model, plain.loss, plain.data, **options)
