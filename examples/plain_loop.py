"""A plain PyTorch loop that gives a posterior: a small convolutional network with batch norm.

The lines marked (+) are all that differs from training one network with SGD.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from entropy_mcmc import EntropyMCMC, Posterior, metrics, recipes, schedules


def load(rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images of scikit-learn's digits, with their labels."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    x, x_test, y, y_test = train_test_split(images, torch.tensor(labels), random_state=0)
    return x[:rows], y[:rows], x_test, y_test


def network() -> nn.Module:
    """Nothing in it knows about sampling."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )


def train(x: Tensor, y: Tensor, epochs: int, folder: str) -> Posterior:
    """The loop."""
    torch.manual_seed(0)
    model = network()
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    recipe = recipes.from_scratch(model, len(x), 64, epochs, steps_per_pass=len(loader))  # (+)
    sampler = EntropyMCMC(  # (+) instead of torch.optim.SGD
        model.parameters(), **recipe.sampler_options(), seed=0
    )
    cycle = schedules.Cyclical(sampler, **recipe.schedule_options())  # (+)
    posterior = Posterior.create(folder, model, roles=recipe.roles)  # (+)
    print(recipe)
    for _ in range(epochs):
        for inputs, targets in loader:
            loss = F.cross_entropy(model(inputs), targets)
            sampler.zero_grad()
            loss.backward()
            sampler.step()
            if cycle.step():  # (+) True when a sample is due
                posterior.collect(sampler)  # (+)
    posterior.refresh_batchnorm(loader)  # (+) each sample gets statistics of its own weights
    return posterior


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train, then judge the average of all samples on the test images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000, help="training images")
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args(argv)
    x, y, x_test, y_test = load(options.rows)
    with tempfile.TemporaryDirectory() as folder:
        posterior = train(x, y, options.epochs, folder)
        print(posterior)
        scores = metrics.summary(posterior.predict_proba(x_test), y_test)
    print({name: round(value, 4) for name, value in scores.items()})
    return scores


if __name__ == "__main__":
    main()
