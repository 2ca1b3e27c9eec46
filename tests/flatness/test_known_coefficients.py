"""Learning coefficients in closed form: against other derivations and against their definition."""

import itertools
import math

import pytest
import torch

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError
from learning_references import crossing_by_quadrature, linear_network_by_gibbs, pair_by_quadrature


def rank_zero(inputs, outputs, hidden):
    """λ and m of ‖BA‖² from the eigenvalues of BᵀB alone.

    Integrating A out leaves ∏(nβμ_i + γ)^(−M/2) over the q = min(N, H) nonzero eigenvalues μ_i, of
    density ∏μ_i^{(|N−H|−1)/2} ∏_{i<j}|μ_i − μ_j|. With μ_i = (nβ)^{−τ_i}, 0 ≤ τ ≤ 1, the exponent
    of 1/(nβ) is concave in τ, so that its least value λ is at a corner: k of the τ are 1. m counts
    the corners that attain it (they are neighbours on one edge).
    """
    q, gap = min(outputs, hidden), abs(outputs - hidden)
    values = [(inputs * (q - k) + k * (gap + 1) + k * (k - 1)) / 2 for k in range(q + 1)]
    return min(values), values.count(min(values))


@pytest.mark.parametrize("rank", range(4))
def test_linear_networks_equal_the_eigenvalue_derivation(rank):
    """λ(M, N, H, r) = r(M+N−r)/2 + λ(M−r, N−r, H−r, 0): the rank costs its own parameters."""
    for m, n, h in itertools.product(range(max(rank, 1), 7), repeat=3):
        left = (m - rank, n - rank, h - rank)
        rest = rank_zero(*left) if all(left) else (0.0, 1)
        expected = (rank * (m + n - rank) / 2 + rest[0], rest[1])
        assert flatness.linear_network_coefficient(m, n, h, rank) == expected, (m, n, h)


def test_published_values():
    assert flatness.linear_network_coefficient(2, 2, 2, 0).value == 1.5
    assert flatness.linear_network_coefficient(5, 5, 3, 1).value == 8.0
    assert flatness.linear_network_coefficient(4, 3, 3, 3).value == 6.0  # regular: rank 3 of 3×4


@pytest.mark.parametrize("exponents", [(1, 1), (1, 2), (2, 2), (3, 1)])
def test_finite_n_approaches_normal_crossings(exponents):
    """nβ·E[L] is about λ − (m−1)/log(nβ): (λ − nβ·E[L])·log(nβ) tends to m − 1."""
    known = flatness.normal_crossing_coefficient(exponents)
    errors = []
    for weight in (1e6, 1e12):
        gap = known.value - crossing_by_quadrature(exponents, weight, 1.0)[0]
        errors.append(abs(gap * math.log(weight) - (known.multiplicity - 1)))
    assert errors[1] < min(errors[0], 0.2)


@pytest.mark.parametrize(("inputs", "outputs"), [(2, 2), (3, 4)])
def test_finite_n_approaches_linear_networks(inputs, outputs):
    known = flatness.linear_network_coefficient(inputs, outputs, 2, 0)
    gaps = [
        known.value - pair_by_quadrature(inputs, outputs, weight, 1.0)[0]
        for weight in (1e2, 1e4, 1e8)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > -1e-3
    assert gaps[2] == pytest.approx((known.multiplicity - 1) / math.log(1e8), abs=0.01)


def test_finite_n_approaches_a_network_of_rank_one():
    """Exact Gibbs draws around a true map of rank 1: 7.63, 7.86 and 7.98 on the way to 8."""
    a = torch.zeros(3, 5, dtype=torch.float64)
    a[0, 0] = 1
    known = flatness.linear_network_coefficient(5, 5, 3, 1).value
    gaps = []
    for weight in (1e2, 1e3, 1e5):
        got, error, _ = linear_network_by_gibbs(
            (a, a.mT.clone()), weight, 1.0, chains=100, steps=400, seed=0
        )
        gaps.append(known - got)
        assert error < 0.03
    assert gaps[0] > gaps[1] > gaps[2]
    assert abs(gaps[2]) < 0.1


@pytest.mark.parametrize("exponents", [(), (0, 0), (1, -1)])
def test_bad_exponents_are_refused(exponents):
    with pytest.raises(ConfigError, match="exponents"):
        flatness.normal_crossing_coefficient(exponents)


def test_a_rank_above_the_width_is_refused():
    with pytest.raises(ConfigError, match=r"at most 2.*rank=3"):
        flatness.linear_network_coefficient(4, 3, 2, 3)
