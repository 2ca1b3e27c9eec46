"""The figure of Theorem 1: exact distances against the printed and the corrected bound."""

import numpy as np
import pytest

from entropy_mcmc import report, theory
from entropy_mcmc.report import theory_figure


def test_chain_distances_converge_to_the_stationary_distribution():
    eta, alpha, h = 0.5, 0.1, 1.0
    got = theory_figure.chain_distances(np.array([h]), eta, alpha, 400, start=2.0)
    moments = theory.euler_covariance(alpha, h, eta)
    sigma = np.array([[moments.theta, moments.cross], [moments.cross, moments.guide]])
    hessian = np.array([[h + 1 / eta, -1 / eta], [-1 / eta, 1 / eta]])
    # The two covariances share eigenvectors: W2² is Σ(√a − √b)².
    a, b = (np.sqrt(np.linalg.eigvalsh(s)) for s in (sigma, np.linalg.inv(hessian)))
    assert got[-1] == pytest.approx(np.linalg.norm(a - b), rel=1e-6)
    assert got[0] == pytest.approx(np.sqrt(8 + np.trace(np.linalg.inv(hessian))))


def test_theory_figure_shows_both_bounds(tmp_path):
    path = report.save_theory_figure(tmp_path / "bounds.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    small, limit, printed = report.draw_bounds().axes
    for axis in (small, limit):
        measured, wrong, right = (line.get_ydata() for line in axis.lines)
        assert (measured <= right).all()
        assert (measured > wrong).any()
    measured, wrong = (line.get_ydata() for line in printed.lines)
    assert measured[-1] > 1e6 * wrong[-1]
