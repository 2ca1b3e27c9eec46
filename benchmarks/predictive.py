"""The predictive over 16 samples against 16 plain forward passes, in one run.

Prints JSON: the ratio with its spread over interleaved repeats, and for small networks the speed
of many samples at once against one after another.

    python benchmarks/predictive.py [--model resnet8] [--images 1000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from entropy_mcmc import models
from entropy_mcmc.posterior import Posterior

BATCH = 250


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def store(folder: str, model: nn.Module, samples: int) -> Posterior:
    posterior = Posterior.create(folder, model)
    for step in range(samples):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.999)
        posterior.collect(step=step)
    return posterior


def plain_passes(model: nn.Module, x: Tensor, count: int) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(count):
            for batch in x.split(BATCH):
                model(batch)


def summary(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
    }


def against_plain(name: str, images: int, samples: int, repeats: int) -> dict[str, object]:
    model = models.build(name)
    x = torch.randn(images, 3, 32, 32)
    with tempfile.TemporaryDirectory() as folder:
        posterior = store(folder, model, samples)
        posterior.refresh_batchnorm([x[:BATCH]])
        plain_passes(model, x, 1)
        plain, predictive = [], []
        for _ in range(repeats):
            plain.append(seconds(lambda: plain_passes(model, x, samples)))
            # A newly opened store checks every SHA-256 again: that is part of the price.
            fresh = Posterior.open(folder, model)
            predictive.append(seconds(lambda p=fresh: p.predict_proba(x, batch_size=BATCH)))
    ratios = [b / a for a, b in zip(plain, predictive, strict=True)]
    return {
        "model": name,
        "images": images,
        "samples": samples,
        "repeats": repeats,
        "plain_seconds": summary(plain),
        "predictive_seconds": summary(predictive),
        "ratio": summary(ratios),
        "ratio_of_medians": round(statistics.median(predictive) / statistics.median(plain), 4),
        "limit": 1.05,
    }


def at_once(width: int, rows: int, repeats: int) -> dict[str, object]:
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 10))
    x = torch.randn(rows, 16)
    with tempfile.TemporaryDirectory() as folder:
        posterior = store(folder, model, 64)
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(repeats):
            for choice in (True, False):
                times[choice].append(
                    seconds(lambda c=choice: posterior.predict_proba(x, vectorize=c))
                )
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "rows": rows,
        "samples": 64,
        "one_by_one_seconds": summary(times[False]),
        "at_once_seconds": summary(times[True]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    result = against_plain(options.model, options.images, options.samples, options.repeats)
    result["threads"] = torch.get_num_threads()
    result["small_models"] = [
        at_once(width, rows, options.repeats) for width in (16, 128, 1024) for rows in (100, 5000)
    ]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
