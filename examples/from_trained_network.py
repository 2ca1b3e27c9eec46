"""Someone else's loop: a CNN with batch norm, trained by AdamW, becomes a posterior.

`train` is a plain PyTorch loop that knows nothing of sampling. `sample_around` is all that is
added: it goes on from the trained network with the settings of `recipes.from_trained`. There are
two controls: AdamW trained as long in one go, and the trained network with a fitted softmax
temperature, which is what one would do first about calibration. What was seen: docs/examples.md.

Fashion-MNIST is read from $EMCMC_DATA; without it the script uses scikit-learn's digits.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from entropy_mcmc import EntropyMCMC, Posterior, data, decisions, metrics, recipes, schedules

BATCH = 64
SHOWN = ("accuracy", "nll", "ece")


def load(rows: int, seed: int) -> tuple[Tensor, ...]:
    """Training, validation and test images with their labels; a seed has its own training rows."""
    name = "fashion-mnist" if os.environ.get("EMCMC_DATA") else "digits"
    train, test = (data.load(name, split=split) for split in ("train", "test"))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    x, y = train.normalise(train.inputs[order]), train.targets[order]
    held = min(1000, rows // 4)
    x_test = train.normalise(test.inputs)
    return x[:rows], y[:rows], x[rows:][:held], y[rows:][:held], x_test, test.targets


def network(channels: int = 16) -> nn.Module:
    """A small convolutional network with batch norm."""
    layers: list[nn.Module] = []
    for before, after in ((1, channels), (channels, 2 * channels)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, 10))


def train(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]], epochs: int) -> None:
    """AdamW with torch's defaults and a cosine: nothing here is ours."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    model.train()
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            cosine.step()


def sample_around(
    model: nn.Module, loader: DataLoader[tuple[Tensor, ...]], passes: int, folder: str, seed: int
) -> Posterior:
    """Go on from a trained network, collecting samples: all that a loop has to add."""
    rows = len(loader.dataset)  # type: ignore[arg-type]
    recipe = recipes.from_trained(model, rows, BATCH, passes, steps_per_pass=len(loader))
    sampler = EntropyMCMC(model.parameters(), **recipe.sampler_options(), seed=seed)
    cycle = schedules.Cyclical(sampler, **recipe.schedule_options())
    posterior = Posterior.create(folder, model, roles=recipe.roles)
    model.train()
    for _ in range(passes):
        for inputs, targets in loader:
            sampler.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            sampler.step()
            if cycle.step():  # True when a sample is due
                posterior.collect(sampler)
    posterior.refresh_batchnorm(loader)  # each sample gets the statistics of its own weights
    return posterior


def one_network(model: nn.Module, x: Tensor) -> Tensor:
    """Probabilities of a single network."""
    model.eval()
    with torch.inference_mode():
        return torch.cat([model(part).softmax(1) for part in x.split(1000)])


def run(rows: int, epochs: int, passes: int, seed: int) -> dict[str, dict[str, float]]:
    """Scores of every way on one split and seed."""
    x, y, x_held, y_held, x_test, y_test = load(rows, seed)
    torch.manual_seed(seed)
    start = network()
    start(x[:2])  # the lazy layer learns its size
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)

    longer = copy.deepcopy(start)
    train(longer, loader, epochs + passes)
    train(start, loader, epochs)
    scaling = decisions.TemperatureScaling.fit(one_network(start, x_held), y_held)
    single = one_network(start, x_test)
    with tempfile.TemporaryDirectory() as folder:
        posterior = sample_around(copy.deepcopy(start), loader, passes, folder, seed)
        averaged = posterior.predict_proba(x_test)
    ways = {
        "AdamW": single,
        "AdamW, temperature scaled": scaling(single),
        "AdamW, all passes": one_network(longer, x_test),
        "posterior": averaged,
    }
    scores = {way: metrics.summary(probs, y_test) for way, probs in ways.items()}
    return {way: {name: score[name] for name in SHOWN} for way, score in scores.items()}


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Print each way's scores, and the posterior's difference from it with its error over seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000, help="training images")
    parser.add_argument("--epochs", type=int, default=20, help="of AdamW")
    parser.add_argument("--passes", type=int, default=20, help="of sampling")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    runs = []
    for seed in range(options.seeds):
        runs.append(run(options.rows, options.epochs, options.passes, seed))
        told = ", ".join(f"{way} {scores['nll']:.4f}" for way, scores in runs[-1].items())
        print(f"seed {seed}, NLL: {told}", flush=True)
    print(f"{'':28}" + "".join(f"{name:>12}{'posterior −':>22}" for name in SHOWN))
    means = {}
    for way in runs[0]:
        means[way] = {name: statistics.mean(r[way][name] for r in runs) for name in SHOWN}
        cells = ""
        for name in SHOWN:
            gaps = [r["posterior"][name] - r[way][name] for r in runs]
            error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
            gap = "" if way == "posterior" else f"{statistics.mean(gaps):+.4f} ± {error:.4f}"
            cells += f"{means[way][name]:12.4f}{gap:>22}"
        print(f"{way:28}{cells}")
    return means


if __name__ == "__main__":
    main()
