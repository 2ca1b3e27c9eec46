"""Small networks: K trained at once, batch-norm statistics, two paths of the compiled step.

    python benchmarks/small.py [--part stacked | runs | refresh | paths] [--repeats 15]

Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import timing
import torch
import torch.nn.functional as F
from step import ETA, SETTINGS, small_parameters
from torch import Tensor, nn

from entropy_mcmc import stacked_layers
from entropy_mcmc.chains.stack_noise import StackNoise
from entropy_mcmc.chains.stacked_modules import StackedModules
from entropy_mcmc.chains.stacked_optimizer import stacked_optimizer
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.losses import classification
from entropy_mcmc.run.refresh import refresh_batches
from entropy_mcmc.run.runner import run
from entropy_mcmc.run.stacked_gradients import stacked_losses
from entropy_mcmc.samplers import EntropyMCMC
from entropy_mcmc.samplers.kernel import advance, compiled

K, BATCH, SAMPLES = 8, 64, 16
INSIDE = {  # of an iteration; the rest is the rule, its copies and calls
    "forward": (nn.Sequential, "forward"),
    "stacked forward": (stacked_layers, "run"),
    "backward": (Tensor, "backward"),
    "noise": (advance, "_normals"),
    "stacked noise": (StackNoise, "normals"),
    "compiled kernel": (compiled, "run"),
}
HYPER = {"lr": 1e-3, "num_data": 1000, "eta": 0.01, "temperature": 0.02, "momentum": 0.9}


def mlp(inputs: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 10))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 230), nn.BatchNorm1d(230), nn.ReLU(), nn.Linear(230, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10),
    )  # fmt: skip


def alone(net: nn.Module, x: Tensor, y: Tensor, noise: bool = True) -> Callable[[], object]:
    """One training iteration of one network."""
    sampler = EntropyMCMC(net.parameters(), seed=0, fused=False, **HYPER)
    sampler.param_groups[0]["noise"] = noise

    def run() -> None:
        sampler.zero_grad()
        F.cross_entropy(net(x), y).backward()
        sampler.step()

    return run


def together(
    nets: list[nn.Module], x: Tensor, y: Tensor, noise: bool = True, fused: bool = False
) -> Callable[[], object]:
    """One training iteration of all networks, stacked as `emcmc sample --chains` does it."""
    stacked, number = StackedModules(nets), len(nets)
    params = list(stacked.parameters.values())
    sampler = stacked_optimizer(
        EntropyMCMC, list(range(number)), lambda kind: kind(params, fused=fused, **HYPER)
    )
    sampler.param_groups[0]["noise"] = noise
    inputs, targets = x.expand(number, *x.shape), y.expand(number, -1)

    def run() -> None:
        sampler.zero_grad()
        stacked_losses(classification, stacked(inputs), targets).sum().backward()
        sampler.step()

    return run


def stacked(repeats: int, cpu_time: bool) -> dict[str, Any]:
    """K networks in one iteration against one network, and against one after the other."""
    kinds: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
        "MLP of 2,000 weights": (lambda: mlp(16, 74), (16,)),
        "MLP of 20,000 weights": (lambda: mlp(64, 266), (64,)),
        "MLP of 20,000 weights with batch norm": (normed, (64,)),
        "CNN of 10,000 weights": (cnn, (1, 16, 16)),
    }
    rows, shown, profiles = [], {}, {}
    for name, (make, shape) in kinds.items():
        x, y = torch.randn(BATCH, *shape), torch.randint(0, 10, (BATCH,))
        many = lambda make=make: [make() for _ in range(K)]  # noqa: E731
        actions = {
            "one": alone(make(), x, y),
            "one, noise off": alone(make(), x, y, noise=False),
            "stacked": together(many(), x, y),
            "stacked, noise off": together(many(), x, y, noise=False),
            "stacked, compiled": together(many(), x, y, fused=True),
        }
        times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
        rows += _stacked_rows(name, times)
        shown |= {f"{name}, {k}": v for k, v in timing.milliseconds(times).items()}
        if name == "MLP of 20,000 weights":
            profiles = {k: timing.profile(actions[k], INSIDE, repeats) for k in actions}
    what = "MLP of 20,000 weights"
    return {"rows": rows, "milliseconds": shown, "profiles": profiles, "profile_of": what}


def _stacked_rows(name: str, times: dict[str, list[float]]) -> list[timing.Row]:
    if "CNN" in name:  # runs make its chains one after the other unless told otherwise
        each = [K * t for t in times["one"]]
        return [timing.ratio(f"{name}: {K} at once (--compute.stacked yes) / one after the other",
                             times["stacked"], each, "–")]  # fmt: skip
    pairs = {
        "": ("stacked", "one"),
        ", noise off": ("stacked, noise off", "one, noise off"),
        ", noise compiled, as in long runs": ("stacked, compiled", "one"),
    }
    rows = [
        timing.ratio(f"{name}: {K} at once / one alone{what}", times[top], times[bottom], "≤ 3")
        for what, (top, bottom) in pairs.items()
    ]
    for what in ("", ", noise off"):
        each = [K * t for t in times[f"one{what}"]]
        rows.append(timing.ratio(f"{name}: {K} at once / one after the other{what}",
                                 times[f"stacked{what}"], each, "≤ 1"))  # fmt: skip
    return rows


def runs(repeats: int, cpu_time: bool) -> dict[str, Any]:
    """`emcmc sample --chains 8` of an MLP of 10,000 weights: at once and one after the other."""

    def action(stacked: str) -> Callable[[], object]:
        def run_it() -> None:
            with tempfile.TemporaryDirectory() as folder:
                config = with_parts(
                    RunConfig(run_dir=f"{folder}/run", chains=K),
                    model={"name": "mlp", "options": {"hidden": [133]}},
                    schedule={"epochs": 6},
                    compute={"stacked": stacked},
                    output={"progress": False},
                )
                run(config)

        return run_it

    actions = {"at once": action("yes"), "in turn": action("no")}
    times = timing.interleaved(actions, max(2, repeats // 12), cpu_time=cpu_time)
    row = timing.ratio(f"{K} chains of an MLP on digits, whole run: at once / one after the other",
                       times["at once"], times["in turn"], "≤ 1")  # fmt: skip
    return {"rows": [row], "milliseconds": timing.milliseconds(times)}


def refresh(repeats: int, cpu_time: bool) -> dict[str, Any]:
    """Batch-norm statistics of 16 samples as a share of the run that made them."""
    clock = time.process_time if cpu_time else time.perf_counter
    wholes, parts = [], []
    plain = Posterior.refresh_batchnorm

    def timed(*given: Any, **options: Any) -> int:
        start = clock()
        count = plain(*given, **options)
        parts.append(clock() - start)
        return count

    for _ in range(max(2, repeats // 15)):
        with tempfile.TemporaryDirectory() as folder, \
             patch.object(Posterior, "refresh_batchnorm", timed):  # fmt: skip
            config = with_parts(
                RunConfig(run_dir=f"{folder}/run"),
                model={"name": "cnn", "options": {"norm": "bn"}},
                schedule={"epochs": 20, "samples_per_cycle": SAMPLES},
                output={"progress": False},
            )
            start = clock()
            made = run(config)
            wholes.append(clock() - start)
    count = refresh_batches(made.record.config, made.record.cycle_steps, made.problem.source.steps)
    row = timing.ratio(f"batch-norm statistics of {len(made.posterior)} samples, {count} batches "
                       "each / the whole run", parts, wholes, "≤ 0.15")  # fmt: skip
    return {"rows": [row]}


def paths(repeats: int, cpu_time: bool) -> dict[str, Any]:
    """The compiled step through `torch.compile`, as in other versions of torch, and directly."""

    def made(size: int) -> EntropyMCMC:
        sampler = EntropyMCMC(small_parameters(size), eta=ETA, fused=True, **SETTINGS)
        sampler.step()
        return sampler

    direct = made(1612)
    compiled._ready.cache_clear()
    with patch.object(compiled, "KNOWN_TORCH", "another version"):
        public = made(1612)
        kept = compiled._ready
        compiled_public = {}

        def ready(*given: Any) -> Any:
            if given not in compiled_public:
                compiled_public[given] = kept.__wrapped__(*given)
            return compiled_public[given]

        def through() -> None:
            with patch.object(compiled, "_ready", ready):
                public.step()

        through()
    compiled._ready.cache_clear()
    actions = {"direct": direct.step, "public": through}
    times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
    row = timing.ratio("62 tensors, 100,000 parameters: compiled step by public torch.compile / "
                       "called directly", times["public"], times["direct"], "–")  # fmt: skip
    return {"rows": [row], "milliseconds": timing.milliseconds(times)}


PARTS = {
    "stacked": stacked,
    "runs": runs,
    "refresh": refresh,
    "paths": paths,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--part", choices=PARTS, default="stacked")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, CPU time, not wall")
    given = parser.parse_args()
    timing.use_threads(None, given.cpu_time)
    torch.manual_seed(0)
    result = PARTS[given.part](4 * given.repeats, given.cpu_time)
    out = {"threads": torch.get_num_threads(), "cpu_time": given.cpu_time, **result}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
