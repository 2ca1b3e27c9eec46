"""The last layer of a trained network: a posterior at the cost of a logistic regression.

The network is trained by AdamW and then frozen. Its features are computed once, and only the last
layer is sampled: 16 samples are 16 small matrices, and the rest is stored once. Controls: the
network itself, and the same with a fitted softmax temperature. What was seen: docs/examples.md.

Fashion-MNIST is read from $EMCMC_DATA; without it the script uses scikit-learn's digits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entropy_mcmc import EntropyMCMC, Posterior, data, decisions, metrics, schedules

BATCH = 64
SHOWN = ("accuracy", "nll", "ece")


class Network(nn.Module):
    """A small convolutional network with batch norm: a backbone, and one linear layer."""

    def __init__(self, side: int, channels: int = 16, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((1, channels), (channels, 2 * channels)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        inputs = 2 * channels * (side // 4) ** 2
        self.backbone = nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs, width), nn.ReLU())
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.backbone(x))
        return logits


def load(rows: int, seed: int) -> tuple[Tensor, ...]:
    """Training, validation and test images with their labels; a seed has its own training rows."""
    name = "fashion-mnist" if os.environ.get("EMCMC_DATA") else "digits"
    train, test = (data.load(name, split=split) for split in ("train", "test"))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    x, y = train.normalise(train.inputs[order]), train.targets[order]
    held = min(1000, rows // 4)
    x_test = train.normalise(test.inputs)
    return x[:rows], y[:rows], x[rows:][:held], y[rows:][:held], x_test, test.targets


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    """AdamW with torch's defaults and a cosine."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        cosine.step()


def sample_head(model: Network, x: Tensor, y: Tensor, folder: str, seed: int) -> Posterior:
    """Sample the last layer alone, on features that are computed once."""
    model.eval()  # frozen: dropout off, batch-norm statistics stay
    with torch.inference_mode():
        features = torch.cat([model.backbone(part) for part in x.split(1000)])
    features = features.clone()  # out of inference mode
    # The curvature of a logistic regression is at most half of that: above it mini-batches heat.
    lr, steps = 1 / float(features.square().sum(1).mean()), 2000
    sampler = EntropyMCMC(
        model.head.parameters(),
        lr=lr,
        num_data=len(x),
        eta=100 * lr / len(x),  # the guide averages over 100 steps
        temperature=1.0,  # Bayes: a logistic regression is a model that one can believe in
        prior_variance=20 / features.shape[1],
        momentum=0.9,
        seed=seed,
    )
    cycle = schedules.Cyclical(sampler, steps, cycles=1, burn_in=0.5, samples_per_cycle=16)
    posterior = Posterior.create(folder, model, roles="theta")
    print(posterior.expected_size(16, sampler))
    for _ in range(steps):
        rows = torch.randint(len(x), (BATCH,))
        sampler.zero_grad()
        F.cross_entropy(model.head(features[rows]), y[rows]).backward()
        sampler.step()
        if cycle.step():
            posterior.collect(sampler, frozen_batchnorm=True)
    return posterior


def one_network(model: nn.Module, x: Tensor) -> Tensor:
    """Probabilities of a single network."""
    model.eval()
    with torch.inference_mode():
        return torch.cat([model(part).softmax(1) for part in x.split(1000)])


def run(rows: int, epochs: int, seed: int) -> dict[str, dict[str, float]]:
    """Scores of the network, of the same with a fitted temperature, and of the posterior."""
    x, y, x_held, y_held, x_test, y_test = load(rows, seed)
    torch.manual_seed(seed)
    model = Network(x.shape[-1])
    train(model, x, y, epochs)
    single = one_network(model, x_test)
    scaling = decisions.TemperatureScaling.fit(one_network(model, x_held), y_held)
    with tempfile.TemporaryDirectory() as folder:
        # One module of all samples: the backbone is in it once, and runs once per call.
        module = sample_head(model, x, y, folder, seed).as_module()
    with torch.inference_mode():
        averaged = torch.cat([module(part) for part in x_test.split(1000)])
    ways = {"AdamW": single, "temperature scaled": scaling(single), "last layer": averaged}
    scores = {way: metrics.summary(probs, y_test) for way, probs in ways.items()}
    return {way: {name: score[name] for name in SHOWN} for way, score in scores.items()}


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Print each way's scores, and the posterior's difference from it with its error over seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000, help="training images")
    parser.add_argument("--epochs", type=int, default=20, help="of AdamW")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    runs = []
    for seed in range(options.seeds):
        runs.append(run(options.rows, options.epochs, seed))
        told = ", ".join(f"{way} {scores['nll']:.4f}" for way, scores in runs[-1].items())
        print(f"seed {seed}, NLL: {told}", flush=True)
    print(f"{'':20}" + "".join(f"{name:>12}{'last layer −':>22}" for name in SHOWN))
    means = {}
    for way in runs[0]:
        means[way] = {name: statistics.mean(r[way][name] for r in runs) for name in SHOWN}
        cells = ""
        for name in SHOWN:
            gaps = [r["last layer"][name] - r[way][name] for r in runs]
            error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
            gap = "" if way == "last layer" else f"{statistics.mean(gaps):+.4f} ± {error:.4f}"
            cells += f"{means[way][name]:12.4f}{gap:>22}"
        print(f"{way:20}{cells}")
    return means


if __name__ == "__main__":
    main()
