"""Predictions with 16 samples of a small network against 16 plain forward passes, in one run.

    python benchmarks/predictions.py [--repeats 15] [--cpu-time]

The plain passes are those of one network of that size, without softmax and average. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from typing import Any

import predictive as plain
import timing
import torch
from torch import Tensor, nn

from entropy_mcmc import stacked_layers
from entropy_mcmc.posterior import Posterior, predictive, stacked_samples
from entropy_mcmc.posterior.store import Signatures

SAMPLES = 16
INSIDE = {
    "files looked at": (Signatures, "hold"),
    "batched products": (stacked_layers, "run"),
    "softmax": (stacked_samples, "_rows"),
    "average": (predictive.Mean, "add"),
}


def ways(net: nn.Module, posterior: Posterior, x: Tensor) -> dict[str, Callable[[], object]]:
    """The same predictions by several ways, and the products that all of them need."""
    posterior.predict_proba(x)
    kept = posterior._stacked._kept
    layers = stacked_layers.known_layers(net, training=False)
    assert kept is not None
    assert layers is not None
    state, module = kept.state, posterior.as_module()

    @torch.no_grad()
    def products() -> None:
        for batch in x.split(plain.BATCH):
            stacked_layers.run(layers, batch.expand(SAMPLES, *batch.shape), state)

    return {
        "plain": lambda: plain.plain_passes(net, x, SAMPLES),
        "posterior": lambda: posterior.predict_proba(x, batch_size=plain.BATCH),
        "module": torch.no_grad()(lambda: module(x)),
        "products": products,
    }


def predict(repeats: int, cpu_time: bool) -> dict[str, Any]:
    """Ratios and profiles for two sizes of network and of batch."""
    rows, shown, profiles = [], {}, {}
    for inputs, width in ((16, 64), (64, 266)):
        net = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 10))
        size = sum(p.numel() for p in net.parameters())
        with tempfile.TemporaryDirectory() as folder:
            plain.store(folder, net, SAMPLES).close()
            posterior = Posterior.open(folder, net)
            for count in (8, 1000):
                actions = ways(net, posterior, torch.randn(count, inputs))
                times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
                what = f"{size:,} weights, {count} rows"
                rows += _rows(what, times)
                profiles[what] = timing.profile(actions["posterior"], INSIDE, repeats)
                shown |= {f"{what}, {k}": v for k, v in timing.milliseconds(times).items()}
    return {"rows": rows, "milliseconds": shown, "profiles": profiles, "profile_of": "prediction"}


def _rows(what: str, times: dict[str, list[float]]) -> list[timing.Row]:
    pairs = {
        "predict_proba": ("posterior", "≤ 0.5"),
        "as_module, samples in memory": ("module", "–"),
        "batched products alone (the limit)": ("products", "–"),
    }
    return [
        timing.ratio(f"{what}: {name} / 16 plain passes", times[key], times["plain"], target)
        for name, (key, target) in pairs.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, CPU time, not wall")
    given = parser.parse_args()
    timing.use_threads(None, given.cpu_time)
    torch.manual_seed(0)
    result = predict(4 * given.repeats, given.cpu_time)
    out = {"threads": torch.get_num_threads(), "cpu_time": given.cpu_time, **result}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
