"""Regression with uncertainty bands: what is noise, and what the data do not say.

The network returns a mean and a log-variance. Noise grows to the right; nothing was measured
between −0.3 and 0.4, nor outside −1 to 1, and there the sampled networks disagree. They disagree
only as far as the prior lets them: far to the left all of them are wrong together.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entropy_mcmc import EntropyMCMC, Posterior, schedules
from entropy_mcmc.posterior import RegressionPrediction

CURVE, NOISE = "#3b6fb6", "#d9a441"


def truth(x: Tensor) -> Tensor:
    """The curve that was measured with noise."""
    return torch.sin(4 * x) + 0.5 * x


def measure(rows: int) -> tuple[Tensor, Tensor]:
    """Noisy points with a gap."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(4 * rows, generator=generator) * 2 - 1
    x = x[(x < -0.3) | (x > 0.4)][:rows]
    noise = (0.1 + 0.1 * (x + 1)) * torch.randn(len(x), generator=generator)
    return x[:, None], truth(x) + noise


def train(x: Tensor, y: Tensor, steps: int, folder: Path) -> Posterior:
    """Full-batch Entropy-MCMC at T = 1: the Bayes posterior of this network and prior."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 2)
    )
    lr = 0.004
    sampler = EntropyMCMC(
        model.parameters(),
        lr=lr,
        num_data=len(x),
        eta=10 * lr / len(x),
        temperature=1.0,
        weight_decay=2 / len(x),  # prior N(0, 1/2) for every weight
        momentum=0.9,
        seed=0,
    )
    cycle = schedules.Cyclical(sampler, steps, cycles=4, burn_in=0.5, samples_per_cycle=12)
    posterior = Posterior.create(folder, model, likelihood="regression")
    for _ in range(steps):
        mean, log_variance = model(x).unbind(1)
        loss = F.gaussian_nll_loss(mean, y, log_variance.exp())
        sampler.zero_grad()
        loss.backward()
        sampler.step()
        if cycle.step():
            posterior.collect(sampler)
    return posterior


def draw(x: Tensor, y: Tensor, grid: Tensor, predicted: RegressionPrediction, path: Path) -> None:
    """Two standard deviations of the disagreement, and of everything."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    mean, line = np.asarray(predicted.mean), np.asarray(grid[:, 0])
    whole, disagreement = (
        np.asarray(predicted.variance.sqrt()),
        np.asarray(predicted.epistemic.sqrt()),
    )
    label = "± 2 std in all (with noise)"
    axes.fill_between(line, mean - 2 * whole, mean + 2 * whole, color=NOISE, alpha=0.3, label=label)
    low, high = mean - 2 * disagreement, mean + 2 * disagreement
    label = "± 2 std between networks"
    axes.fill_between(line, low, high, color=CURVE, alpha=0.35, label=label)
    axes.plot(line, mean, color=CURVE, label="mean")
    axes.plot(line, truth(grid[:, 0]), "k--", lw=1, label="truth")
    axes.plot(x[:, 0], y, "k.", ms=4, label="data")
    axes.set_ylim(-2.6, 2.6)
    axes.set_xlabel("x")
    axes.legend(ncols=3, loc="lower center", fontsize=8)
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Sample, predict, and compare the disagreement in the gap with that where data are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--picture", type=Path, default=Path("regression-bands.png"))
    options = parser.parse_args(argv)
    x, y = measure(options.rows)
    grid = torch.linspace(-1.4, 1.4, 281)[:, None]
    with tempfile.TemporaryDirectory() as folder:
        posterior = train(x, y, options.steps, Path(folder) / "run")
        predicted = posterior.predict_distribution(grid)
    draw(x, y, grid, predicted, options.picture)
    inside = ((grid > -0.15) & (grid < 0.25))[:, 0]
    data = ((grid > -0.9) & (grid < -0.5))[:, 0]
    result = {
        "disagreement in the gap": float(predicted.epistemic[inside].sqrt().mean()),
        "disagreement at data": float(predicted.epistemic[data].sqrt().mean()),
    }
    print(result, f"picture: {options.picture}")
    return result


if __name__ == "__main__":
    main()
