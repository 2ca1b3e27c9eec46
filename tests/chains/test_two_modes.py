"""Two modes of equal depth and different width: who prefers the flat one, and by how much.

U = −log(e^{−‖θ−m₁‖²/(2·0.5)} + e^{−‖θ−m₂‖²/2}), d = 2, η = 0.5. The mass nearer each mean is
compared with quadrature, with the standard error over independent chains, which start half in each
mode. A bound of 4 standard errors has a false-alarm rate of 6e-5; seeds are fixed. Steps are
BAOAB's, which cross sooner than Euler's and have the same target as lr → 0.
"""

import numpy as np
import pytest
import torch

from entropy_mcmc import chains
from scenarios import FLAT, FLAT_VARIANCE, SHARP, SHARP_VARIANCE

ETA = 0.5
VARIANCES = np.array([SHARP_VARIANCE, FLAT_VARIANCE])
CLOSE = 0.6  # of the paper's distance from the origin
BOUND = 4.0
STEPS = {"integrator": "baoab", "momentum": 0.8}


def means(scale):
    return scale * torch.stack([SHARP, FLAT])


def energy(scale):
    centres, variances = means(scale), torch.tensor(VARIANCES, dtype=torch.float32)
    return lambda theta: (
        -torch.logsumexp(-(theta - centres).square().sum(1) / (2 * variances), dim=0)
    )


def log_mixture(points, scale, weights, variances):
    parts = [
        np.log(w) - ((points - m.numpy()) ** 2).sum(-1) / (2 * v)
        for m, w, v in zip(means(scale), weights, variances, strict=True)
    ]
    return np.logaddexp(*parts)


def flat_share(scale, weights, variances, power):
    """Mass of density**power nearer the flat mean, by 2-D quadrature."""
    axis = np.linspace(-8, 8, 801)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    log_density = power * log_mixture(points, scale, weights, variances)
    density = np.exp(log_density - log_density.max())
    return density[nearer_flat(torch.tensor(points), scale).numpy()].sum() / density.sum()


def guide_share(scale, y):
    """Mass of exp(yF) there: F is the log of a Gaussian mixture, peaks s/(s+η) high."""
    return flat_share(scale, VARIANCES / (VARIANCES + ETA), VARIANCES + ETA, y)


def posterior_share(scale, temperature):
    """Mass of exp(−U/T) nearer the flat mean."""
    return flat_share(scale, np.ones(2), VARIANCES, 1 / temperature)


def nearer_flat(points, scale):
    sharp, flat = ((points - m.to(points)).square().sum(-1) for m in means(scale))
    return flat < sharp


def crossings(points, scale):
    """Moves from one core (a quarter of the distance around a mean) to the other, in all chains."""
    sharp, flat = means(scale)
    radius = (flat - sharp).norm() / 4
    inside = [(points - m).norm(dim=-1) < radius for m in (sharp, flat)]
    core = (inside[1].long() - inside[0].long()).numpy()
    visits = (row[row != 0] for row in core)
    return sum(int((row[1:] != row[:-1]).sum()) for row in visits)


def run_chains(scale, count, steps, lr, **settings):
    """Fraction of draws nearer the flat mean, its standard error, and the crossings."""
    return run_halves(scale, count, steps // 4, steps, lr, **settings)[0]


def run_halves(scale, count, burn_in, steps, lr, **settings):
    """The same, after burn-in, and the fraction with its error by the mode of the start."""
    draws = chains.run(
        energy(scale), means(scale)[torch.arange(count) % 2], steps=steps, burn_in=burn_in, thin=10,
        lr=lr, num_data=1, seed=1, **STEPS, **settings,
    )  # fmt: skip
    points = draws.theta if draws.guide is None else draws.guide
    share = nearer_flat(points, scale).double().mean(1)
    halves = [mean_and_error(share[mode::2]) for mode in (0, 1)]
    return (*mean_and_error(share), crossings(points, scale)), halves


def mean_and_error(shares):
    """Over independent chains."""
    return float(shares.mean()), float(shares.std() / len(shares) ** 0.5)


def check(measured, expected):
    share, error, crossed = measured
    assert crossed >= 1000
    assert abs(share - expected) < BOUND * error


def cooled(scale, temperature, **options):
    """SGLD at a temperature, in its underdamped form: the same target, crossed sooner."""
    return run_chains(scale, sampler="sghmc", temperature=temperature, **options)


def test_closed_form_of_the_smoothed_posterior():
    """F against quadrature of its integral over θ, up to a constant."""
    axis = np.linspace(-9, 9, 721)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    weight = np.exp(log_mixture(theta, CLOSE, np.ones(2), VARIANCES))
    places = np.array([[0.0, 0.0], [1.3, 0.65], [-1.0, 0.4]])
    by_hand = [
        np.log((weight * np.exp(-((theta - a) ** 2).sum(-1) / (2 * ETA))).sum()) for a in places
    ]
    closed = log_mixture(places, CLOSE, VARIANCES / (VARIANCES + ETA), VARIANCES + ETA)
    np.testing.assert_allclose(np.diff(by_hand), np.diff(closed), rtol=1e-6)


def test_odds_in_the_papers_landscape():
    """At the paper's means 1.84, 4.62 and 14.6 : 1 for the guide; cooling leaves 2 : 1."""
    odds = [guide_share(1.0, y) / (1 - guide_share(1.0, y)) for y in (1, 4, 8)]
    np.testing.assert_allclose(odds, [1.842, 4.615, 14.62], rtol=1e-3)
    cold = [posterior_share(1.0, 1 / y) for y in (4, 8)]
    np.testing.assert_allclose(cold, 2 / 3, atol=1e-3)


@pytest.mark.parametrize("y", [1, 4])
def test_guide_of_replicas_has_the_odds_of_its_target(y):
    check(run_chains(CLOSE, 400, 1500, 0.1, eta=ETA, replicas=y), guide_share(CLOSE, y))


@pytest.mark.soak
def test_guide_of_eight_replicas_has_the_odds_of_its_target():
    """3.9 : 1, where the posterior has 1.6 : 1, cooled or not."""
    measured = run_chains(CLOSE, 500, 3000, 0.08, eta=ETA, replicas=8)
    check(measured, guide_share(CLOSE, 8))
    share, error, _ = measured
    for temperature in (1.0, 1 / 8):
        assert share - posterior_share(CLOSE, temperature) > 10 * error


def test_sgld_cooled_to_a_quarter_stays_at_its_own_odds():
    measured = cooled(CLOSE, 1 / 4, count=1000, steps=1500, lr=0.1)
    check(measured, posterior_share(CLOSE, 1 / 4))
    assert guide_share(CLOSE, 4) - measured[0] > 10 * measured[1]


@pytest.mark.soak
def test_sgld_cooled_to_an_eighth_stays_at_its_own_odds():
    measured = cooled(CLOSE, 1 / 8, count=2000, steps=4000, lr=0.15)
    check(measured, posterior_share(CLOSE, 1 / 8))
    assert guide_share(CLOSE, 8) - measured[0] > 10 * measured[1]


def at_the_papers_means(y, count, burn_in, steps, lr):
    """Half of the chains start in each mode; burn-in is five or more relaxation times."""
    measured, halves = run_halves(1.0, count, burn_in, steps, lr, eta=ETA, replicas=y)
    check(measured, guide_share(1.0, y))
    shares, errors = zip(*halves, strict=True)
    assert abs(shares[1] - shares[0]) < BOUND * np.hypot(*errors)  # nothing is left of the starts


def test_one_replica_at_the_papers_means():
    """Barriers of 1.2 and 1.5 nats for the guide: the start is forgotten in about 150 steps."""
    at_the_papers_means(1, count=1000, burn_in=1000, steps=2000, lr=0.1)


@pytest.mark.soak
def test_four_replicas_at_the_papers_means():
    """Barriers of 4.7 and 5.8 nats: the start is forgotten in 8,600 steps, a fifth of burn-in.

    Half of the starts are in the sharp mode, where the target has 18 %. BAOAB is exact within a
    mode, but across barriers its odds err in proportion to lr: at 0.2 the share of the flat mode
    was 0.803 ± 0.004 instead of 0.822.
    """
    at_the_papers_means(4, count=2000, burn_in=44_000, steps=64_000, lr=0.05)
