"""How the local learning coefficient moves with γ: closed forms on quadratics."""

import math

import numpy as np
import pytest
import torch

from entropy_mcmc.flatness.curvatures import by_hessian, curvatures
from entropy_mcmc.flatness.localisation_effect import localisation_effect
from entropy_mcmc.flatness.model_and_batches import vector
from learning_references import Population, mean, of_population, rows

CURVATURE = torch.tensor([0.0, 0.02, 0.3, 1.0], dtype=torch.float64)


def closed_form(a, gamma):
    return sum(x / (x + gamma) for x in a) / 2


def test_values_and_sensitivity_are_the_closed_form():
    """Sensitivity against a difference of log λ over log γ, step 1e-4."""
    a, count, gamma = np.array([0.0, 3.0, 40.0, 700.0]), np.array([5.0, 1.0, 2.0, 1.0]), 30.0
    effect = localisation_effect(a, count, gamma)
    each = np.repeat(a, count.astype(int))
    assert effect.localisations == (7.5, 30.0, 120.0)
    assert effect.values == pytest.approx([closed_form(each, g) for g in (7.5, 30.0, 120.0)])
    up, down = (math.log(closed_form(each, gamma * math.exp(s))) for s in (1e-4, -1e-4))
    assert effect.sensitivity == pytest.approx((down - up) / 2e-4, rel=1e-6)


def test_from_a_count_of_directions_to_a_trace():
    stiff = localisation_effect([0.0, 1e6], [100, 40], localisation=1.0)
    assert stiff.values == pytest.approx([20.0] * 3, rel=1e-4)
    assert stiff.sensitivity == pytest.approx(0, abs=1e-4)
    assert not stiff.decides
    assert "mostly a count of directions" in str(stiff)
    soft = localisation_effect([0.0, 1e-3], [100, 40], localisation=1.0)
    assert soft.values == pytest.approx([8e-2, 2e-2, 5e-3], rel=0.01)  # Σa/(2γ)
    assert soft.sensitivity == pytest.approx(1, abs=0.01)
    assert soft.decides
    assert "γ decides" in str(soft)


@pytest.mark.parametrize("curvature", [1e6, 1e-3])
def test_no_verdict_where_few_directions_count(curvature):
    """One random vector sees k directions among many with an error of √(2/k): k = 4 is too few."""
    few, enough = (localisation_effect([0.0, curvature], [1000, k], 1.0) for k in (4, 12))
    assert few.errors[1] / few.values[1] == pytest.approx(math.sqrt(2 / 4), rel=0.01)
    assert few.rough
    assert not few.decides
    assert str(few).endswith("of 1 (too rough for a verdict)")
    assert not enough.rough
    assert enough.decides == (curvature < 1)
    assert "verdict" not in str(enough)


def test_nothing_is_said_where_the_loss_does_not_curve_upwards():
    assert localisation_effect([-5.0, 0.0], [3, 3], localisation=1.0) is None


def test_nodes_of_a_network_give_the_sum_within_the_stated_error():
    """4 × 100 directions; at γ/4, γ and 4γ within 4.5 of the errors from one vector."""
    model = Population(lambda w: (CURVATURE * w.square()).sum(1) / 2, 100, 4)
    product = by_hessian(model, mean, [rows(1)], [torch.ones(())])
    found = curvatures(product, vector(model), seed=0)
    np.testing.assert_allclose(found.values, CURVATURE, atol=1e-9)
    assert found.counts.sum() == pytest.approx(400)
    effect = localisation_effect(145 * found.values, found.counts, 20.0)
    a = np.repeat(145 * CURVATURE.numpy(), 100)
    for gamma, value, error in zip(effect.localisations, effect.values, effect.errors, strict=True):
        f = a / (a + gamma)
        assert error == pytest.approx(math.sqrt(2 * ((f - f.mean()) ** 2).sum()) / 2, rel=0.2)
        assert abs(value - closed_form(a, gamma)) < 4.5 * error


def test_chains_at_other_localisations_move_as_the_effect_says():
    """λ̂ of chains at γ/4, γ and 4γ against the effect reported at γ, at its own spectrum."""
    n, gamma, copies = 1000, 20.0, 200
    options = {"steps": 500, "burn_in": 300, "chains": 1, "seed": 1}

    def loss(w):
        return (CURVATURE * w.square()).sum(1) / 2

    _, at = of_population(loss, copies, 4, n, localisation=gamma, **options)
    a = n / math.log(n) * np.repeat(CURVATURE.numpy(), copies)
    for part, value, error in zip((0.25, 1, 4), at.effect.values, at.effect.errors, strict=True):
        _, other = of_population(loss, copies, 4, n, localisation=part * gamma, **options)
        excess = 1 / (1 - 0.05) - 1  # of the automatic step: at most 5 % in the stiffest direction
        room = 4.5 * math.hypot(error, other.standard_error)
        assert abs(other.value - value) < room + excess * closed_form(a, part * gamma)
    assert "γ is a convention" in str(at)
