"""ESS and R-hat of predictions: known cases, and words instead of NaN."""

import sys

import numpy as np
import pytest

from entropy_mcmc.diagnostics import mixing
from entropy_mcmc.errors import ConfigError


def ar1(n, rho, width, seed, shift=0.0):
    g = np.random.default_rng(seed)
    x = np.zeros((n, width))
    x[0] = g.normal(size=width)
    for t in range(1, n):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * g.normal(size=width)
    return x + shift


def test_ess_of_an_autoregressive_chain():
    """ESS/n = (1−ρ)/(1+ρ) = 1/3; the median over 40 functions of 2,000 draws scatters by 5 %."""
    mixed = mixing([ar1(1000, 0.5, 40, seed) for seed in (0, 1)])
    assert mixed.ess[1] == pytest.approx(2000 / 3, rel=0.15)
    assert mixed.ess[0] <= mixed.ess[1]
    assert mixed.rhat[1] <= mixed.rhat[0] < 1.03
    assert mixed.notes == ()
    assert (mixed.draws, mixed.chains, mixed.functions) == (2000, 2, 40)


def test_cycles_that_disagree_have_a_large_rhat():
    cycles = [ar1(20, 0.0, 5, seed, shift=3.0 * seed) for seed in range(3)]
    mixed = mixing(cycles)
    assert mixed.rhat[1] > 1.5
    assert mixed.ess[1] < 15


def test_short_cycles_that_disagree_have_a_small_ess():
    """Four draws in each of four cycles, 5 sd apart: about one independent draw per cycle."""
    g = np.random.default_rng(0)
    apart = [g.normal(size=(4, 100)) + 5 * g.normal(size=100) for _ in range(4)]
    assert mixing(apart).ess[1] < 6
    alike = mixing([g.normal(size=(4, 100)) for _ in range(4)])
    assert 12 < alike.ess[1] <= 16


def test_one_chain_is_halved():
    drifting = ar1(40, 0.0, 3, 0) + np.linspace(0, 6, 40)[:, None]
    assert mixing([drifting]).rhat[0] > 1.3
    assert mixing([ar1(400, 0.0, 3, 0)]).rhat[0] < 1.05


@pytest.mark.parametrize(
    ("lengths", "ess", "rhat"),
    [((1,), False, False), ((2, 1), False, False), ((6, 5), False, True), ((6, 6), True, True),
     ((9, 3), True, False), ((4, 4), False, True), ((7,), False, False), ((12,), True, True),
     ((5, 20), True, True)],
)  # fmt: skip
def test_too_few_draws_are_said_in_words(lengths, ess, rhat):
    mixed = mixing([ar1(n, 0.0, 4, n) for n in lengths])
    assert (mixed.ess is not None, mixed.rhat is not None) == (ess, rhat)
    assert any("too few" in note for note in mixed.notes) == (not ess)
    assert any("no R-hat" in note for note in mixed.notes) == (not rhat)
    assert "nan" not in str(mixed)


def test_predictions_that_stand_still():
    """Saturated probabilities do not vary: left out, and never NaN."""
    moving = [ar1(10, 0.0, 2, seed) for seed in range(2)]
    constant = [np.concatenate([chain, np.ones((10, 3))], axis=1) for chain in moving]
    assert mixing(constant).functions == 2
    assert mixing(constant).rhat == mixing(moving).rhat
    assert "all draws predict the same" in mixing([np.ones((10, 3))]).notes[0]
    stuck = [np.full((10, 1), float(i)) for i in range(2)]
    mixed = mixing(stuck)
    assert "R-hat is infinite" in mixed.notes[0]
    assert "nan" not in str(mixed)


def test_functions_are_thinned_evenly():
    chains = [ar1(10, 0.0, 1000, seed) for seed in range(2)]
    assert mixing(chains, max_functions=7).functions == 7


def test_wrong_input_is_refused():
    with pytest.raises(ConfigError, match="at least one draw"):
        mixing([])
    with pytest.raises(ConfigError, match=r"same numbers, got \[2, 3\]"):
        mixing([np.zeros((4, 2)), np.zeros((4, 3))])
    with pytest.raises(ConfigError, match="must be finite, got 1 draws"):
        mixing([np.array([[1.0], [np.nan]])])


def test_without_arviz_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_stats.base", None)
    mixed = mixing([ar1(10, 0.0, 2, seed) for seed in range(2)])
    assert mixed.ess is None
    assert "pip install arviz-stats" in mixed.notes[0]
