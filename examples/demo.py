"""Three ways to train one small network on scikit-learn's digits: SGD, SGLD and Entropy-MCMC.

All see the digits 0 to 7 only, with the same number of gradients. Then they are asked about digits
they know, and about 8 and 9, which they have never seen. Learning rates and weight decay come from
a small search for each method, on other splits than those shown here. Run by `make demo`; ends with
a table, `demo.png`, and the page of runs made by the run engine: one line each.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

from entropy_mcmc import SGLD, EntropyMCMC, Posterior, metrics, sample, schedules
from entropy_mcmc.report.command import write_report

UNSEEN = (8, 9)
METHODS = ("SGD", "SGLD", "Entropy-MCMC")
COLUMNS = ("accuracy", "nll", "ece", "ood_auroc")
HEADINGS = ("accuracy ↑", "NLL ↓", "ECE ↓", "unseen digits, AUROC ↑")


def load(seed: int) -> dict[str, torch.Tensor]:
    """300 known digits for training, the other known ones for the test, and the unseen ones."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0 - 0.3, dtype=torch.float32)
    labels = torch.tensor(labels)
    known = ~torch.isin(labels, torch.tensor(UNSEEN))
    train, test = train_test_split(
        np.flatnonzero(known), train_size=300, stratify=labels[known], random_state=seed
    )
    return {
        "x": images[train],
        "y": labels[train],
        "x_test": images[test],
        "y_test": labels[test],
        "x_unseen": images[~known],
    }


def network() -> nn.Module:
    """A two-layer perceptron; nothing in it knows about sampling."""
    return nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 8))


def optimizer(method: str, model: nn.Module, num_data: int, seed: int) -> torch.optim.Optimizer:
    """The line that differs between the methods."""
    params = model.parameters()
    if method == "SGD":
        return torch.optim.SGD(params, lr=0.5, weight_decay=1e-3)
    shared = {"num_data": num_data, "temperature": 0.01, "weight_decay": 1e-3, "seed": seed}
    if method == "SGLD":
        return SGLD(params, lr=0.5, **shared)
    # Coupled to its guide, θ moves like a particle of twice the mass: twice the learning rate.
    return EntropyMCMC(params, lr=1.0, eta=0.01, **shared)


def train(
    method: str, data: dict[str, torch.Tensor], steps: int, seed: int, folder: Path
) -> Posterior:
    """Train, collecting the samples that the schedule says are due (for SGD, the last state)."""
    torch.manual_seed(seed)
    model = network()
    sampler = optimizer(method, model, len(data["x"]), seed)
    single = method == "SGD"
    cycle = schedules.Cyclical(
        sampler,
        total_steps=steps,
        cycles=1 if single else 4,
        burn_in=0.5,
        samples_per_cycle=1 if single else 6,
    )
    posterior = Posterior.create(folder / f"{method}-{seed}", model)
    batches = torch.Generator().manual_seed(seed)
    for step in range(steps):
        rows = torch.randint(len(data["x"]), (32,), generator=batches)
        loss = F.cross_entropy(model(data["x"][rows]), data["y"][rows])
        sampler.zero_grad()
        loss.backward()
        sampler.step()
        if cycle.step():
            posterior.collect(sampler, step=step)
    return posterior


def evaluate(posterior: Posterior, data: dict[str, torch.Tensor]) -> dict[str, object]:
    """Accuracy and calibration on known digits; is the entropy higher on unseen ones?"""
    known = posterior.predict_proba(data["x_test"])
    unseen = posterior.predict_proba(data["x_unseen"])
    entropy_known = metrics.predictive_entropy(known)
    entropy_unseen = metrics.predictive_entropy(unseen)
    return {
        "accuracy": metrics.accuracy(known, data["y_test"]),
        "nll": metrics.nll(known, data["y_test"]),
        "ece": metrics.ece(known, data["y_test"]),
        "ood_auroc": metrics.auroc(entropy_known, entropy_unseen),
        "entropy": (np.asarray(entropy_known), np.asarray(entropy_unseen)),
        "unseen": np.asarray(unseen),
        "samples": len(posterior),
    }


def print_table(results: dict[str, list[dict[str, object]]]) -> None:
    """Mean ± standard error over the seeds, one row per method."""
    print(f"\n{'':14}{'networks':>9}" + "".join(f"{heading:>24}" for heading in HEADINGS))
    for method, runs in results.items():
        cells = []
        for column in COLUMNS:
            values = [float(run[column]) for run in runs]  # type: ignore[arg-type]
            error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.4f} ± {error:.4f}")
        print(f"{method:14}{runs[0]['samples']:>9}" + "".join(f"{cell:>24}" for cell in cells))


def draw(results: dict[str, list[dict[str, object]]], images: torch.Tensor, path: Path) -> None:
    """Entropy on known and unseen digits, and what each method says of some unseen ones."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    top.suptitle("How unsure is each method? Digits 8 and 9 were never shown in training.")
    for axes, (method, runs) in zip(top.subplots(1, 3, sharey=True), results.items(), strict=True):
        known, unseen = runs[0]["entropy"]  # type: ignore[misc]
        bins = np.linspace(0, np.log(8), 25)
        axes.hist(known, bins, density=True, alpha=0.75, color="#3b6fb6", label="known digits 0–7")
        axes.hist(unseen, bins, density=True, alpha=0.6, color="#d1603d", label="unseen 8 and 9")
        axes.set_title(f"{method}: AUROC {float(runs[0]['ood_auroc']):.3f}", fontsize=10)  # type: ignore[arg-type]
        axes.set_xlabel("predictive entropy (nats)")
        axes.set_yscale("log")
    figure.axes[0].set_ylabel("density (log)")
    figure.axes[0].legend(fontsize=8)
    first, last = results["SGD"][0]["unseen"], results["Entropy-MCMC"][0]["unseen"]
    chosen = np.argsort(last.max(1) - first.max(1))[:8]  # type: ignore[attr-defined]
    bottom.suptitle("Unseen digits on which SGD is most confident compared with Entropy-MCMC")
    grid = bottom.subplots(2, 8, height_ratios=(1, 0.9))
    for column, row in enumerate(chosen):
        grid[0, column].imshow(images[row].reshape(8, 8).numpy(), cmap="gray_r")
        grid[0, column].axis("off")
        bars = grid[1, column]
        bars.bar(np.arange(8) - 0.2, first[row], 0.4, color="#8a8a8a", label="SGD")  # type: ignore[index]
        bars.bar(np.arange(8) + 0.2, last[row], 0.4, color="#3f8f5a", label="Entropy-MCMC")  # type: ignore[index]
        bars.set_ylim(0, 1)
        bars.set_xticks(range(8))
        bars.tick_params(labelsize=7)
        if column:
            bars.set_yticks([])
    grid[1, 0].set_ylabel("probability")
    bottom.legend(*grid[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)


def report(page: Path, epochs: int) -> Path:
    """The same methods as runs of the engine, on all ten digits, compared on one page."""
    page.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        runs = {method: Path(folder) / method for method in ("sgd", "sgld", "emcmc")}
        for method, run in runs.items():
            print(f"report: {method}, {epochs} epochs", flush=True)
            sample("auto", "digits", method=method, run_dir=run, epochs=epochs, fused="no")
        return write_report([*runs.values()], output=page)


def main() -> None:
    """Run every method on every seed, then show the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000, help="gradients per run")
    parser.add_argument("--seeds", type=int, default=3, help="runs per method")
    parser.add_argument("--picture", type=Path, default=Path("demo.png"))
    parser.add_argument("--page", type=Path, default=Path("runs/demo.html"))
    options = parser.parse_args()
    start = time.perf_counter()
    results: dict[str, list[dict[str, object]]] = {method: [] for method in METHODS}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            data = load(seed)
            for method in METHODS:
                print(f"seed {seed}: {method}, {options.steps} gradients", flush=True)
                posterior = train(method, data, options.steps, seed, Path(folder))
                results[method].append(evaluate(posterior, data))
    print_table(results)
    draw(results, load(0)["x_unseen"], options.picture)
    page = report(options.page, epochs=max(8, options.steps // 80))
    print(
        f"\nMean ± standard error over {options.seeds} seeds; 300 training images; "
        f"{time.perf_counter() - start:.0f} s. Read the errors: on data this easy "
        f"the methods differ by little.\nPicture: {options.picture.resolve()}\n"
        f"Report:  {page.resolve()}"
    )


if __name__ == "__main__":
    main()
