"""The closed forms of benchmarks/nested.py against recursions written straight from the rules."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "nested.py"
spec = importlib.util.spec_from_file_location("nested_benchmark", FILE)
nested = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nested)


def steps_of_a_joint_chain(problem, alpha):
    """M and Q of the Euler rule, iterated until the guide is within 5 % in W2."""
    aim = problem.sd
    mean = np.stack([nested.START * aim] * 2, -1)
    cov = np.zeros((len(aim), 2, 2))
    c = 1 / problem.eta
    move = np.stack([np.eye(2) - alpha * np.array([[h + c, -c], [-c, c]]) for h in problem.h])
    for step in range(1, 10_000):
        mean = np.einsum("iab,ib->ia", move, mean)
        cov = move @ cov @ move.transpose(0, 2, 1) + 2 * alpha * np.eye(2)
        gap = np.sqrt((mean[:, 1] ** 2 + (np.sqrt(cov[:, 1, 1]) - aim) ** 2).sum())
        if gap <= nested.CLOSE * np.sqrt((aim**2).sum()):
            return step
    return nested.NEVER


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_joint_steps_equal_the_recursion(alpha):
    problem = nested.problem(1, 10, 0.5)
    (actual,) = nested.joint(problem, np.array([alpha]))
    naive = steps_of_a_joint_chain(problem, alpha)
    grid = nested.STEPS
    assert naive < nested.NEVER
    assert actual == grid[np.searchsorted(grid, naive)]  # the next number of the grid


def test_the_inner_average_equals_a_simulation():
    """100,000 chains of 20 steps; 5 standard errors, one false alarm in 10^5."""
    problem, alpha, steps, rate = nested.problem(1, 10, 0.5), 0.03, 20, 0.2
    expected, variance = nested.inner(problem, alpha, steps, rate)
    draws = np.random.default_rng(0)
    chain = np.ones((100_000, len(problem.h)))  # from θ = 1
    average = chain.copy()
    for _ in range(steps):
        noise = draws.standard_normal(chain.shape)
        pull = problem.h * chain + (chain - 1) / problem.eta
        chain = chain - alpha * pull + np.sqrt(2 * alpha) * noise
        average = (1 - rate) * average + rate * chain
    error = np.sqrt(variance / len(chain))
    assert np.all(np.abs(average.mean(0) - expected) < 5 * error)
    assert np.allclose(average.var(0) / variance, 1, atol=5 * np.sqrt(2 / len(chain)))


def test_entropy_mcmc_needs_fewer_gradients_than_entropy_sgld():
    own, sgld, *_ = nested.compare(1, 10, 1.0)
    assert 5 < sgld / own < 20
