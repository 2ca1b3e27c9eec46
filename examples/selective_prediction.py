"""Selective prediction: answer where you are sure, pass the rest to a human.

Networks learn digits from few images. Test images are sorted by predictive entropy; the picture
shows how many errors are left when only the surest part is answered.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from entropy_mcmc import EntropyMCMC, Posterior, metrics, schedules

COVERAGES = np.linspace(0.5, 1.0, 26)
COLORS = {"SGD": "#8a8a8a", "Entropy-MCMC": "#3f8f5a"}


def load(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A few training images, and all others for the test."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16 - 0.3, dtype=torch.float32)
    x, x_test, y, y_test = train_test_split(
        images, torch.tensor(labels), train_size=rows, stratify=labels, random_state=seed
    )
    return x, y, x_test, y_test


def train(method: str, x: Tensor, y: Tensor, steps: int, seed: int, folder: Path) -> Posterior:
    """One network by SGD, or the samples of Entropy-MCMC, with the same number of gradients."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    single = method == "SGD"
    if single:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=1e-3)
    else:
        optimizer = EntropyMCMC(
            model.parameters(),
            lr=1.0,  # coupled to its guide, the pair moves like a particle of twice the mass
            num_data=len(x),
            eta=4 * 1.0 / len(x),  # the guide averages over 4 steps
            temperature=0.01,
            weight_decay=1e-3,
            seed=seed,
        )
    cycle = schedules.Cyclical(
        optimizer,
        steps,
        cycles=1 if single else 4,
        burn_in=0.5,
        samples_per_cycle=1 if single else 4,
    )
    posterior = Posterior.create(folder / f"{method}-{seed}", model)
    for _ in range(steps):
        rows = torch.randint(len(x), (32,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if cycle.step():
            posterior.collect(optimizer)
    return posterior


def errors_left(probs: Tensor, labels: Tensor) -> np.ndarray:
    """Share of errors among the answered, when only the surest part is answered."""
    order = np.argsort(metrics.predictive_entropy(probs))
    wrong = (probs.argmax(1) != labels).numpy()[order]
    return np.array([wrong[: round(part * len(wrong))].mean() for part in COVERAGES])


def draw(curves: dict[str, np.ndarray], path: Path) -> None:
    """Mean over seeds, with standard errors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for method, runs in curves.items():
        mean = 100 * runs.mean(0)
        error = 100 * runs.std(0, ddof=1) / len(runs) ** 0.5 if len(runs) > 1 else 0 * mean
        axes.plot(100 * COVERAGES, mean, color=COLORS[method], label=method)
        axes.fill_between(
            100 * COVERAGES, mean - error, mean + error, color=COLORS[method], alpha=0.25
        )
    axes.set_xlabel("answered, % of the test images (surest first)")
    axes.set_ylabel("errors among the answered, %")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(title=f"mean ± standard error, {len(runs)} seeds")
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None) -> dict[str, np.ndarray]:
    """Train both ways on every seed, and draw what is left when the unsure part is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=150, help="training images")
    parser.add_argument("--steps", type=int, default=2000, help="gradients per run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--picture", type=Path, default=Path("selective-prediction.png"))
    options = parser.parse_args(argv)
    by_seed: dict[str, list[np.ndarray]] = {method: [] for method in COLORS}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            x, y, x_test, y_test = load(options.rows, seed)
            for method, runs in by_seed.items():
                posterior = train(method, x, y, options.steps, seed, Path(folder))
                runs.append(errors_left(posterior.predict_proba(x_test), y_test))
    curves = {method: np.stack(runs) for method, runs in by_seed.items()}
    for method, runs in curves.items():
        all_, most = 100 * runs[:, -1].mean(), 100 * runs[:, 15].mean()
        print(f"{method:13} errors: {all_:.1f} % of all, {most:.1f} % of the surest 80 %")
    draw(curves, options.picture)
    print(f"picture: {options.picture}")
    return curves


if __name__ == "__main__":
    main()
