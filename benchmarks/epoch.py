"""An EMCMC epoch through the run engine against the same epoch with torch's SGD in a plain loop.

ResNet-8, batches of 128 images of CIFAR's shape, augmented; noise is on at every step, and a line
of the journal is written every epoch of 3 steps (by default the engine writes one in 50 steps).
EMCMC is timed twice: with the step of the first epochs, and with the compiled one, which
`fused: auto` takes for this network after 13,000 steps. All are timed in turns, so that a change of
the machine's load meets them alike. Processor time says more on a busy machine, wall clock on a
quiet one.

    OMP_NUM_THREADS=1 python benchmarks/epoch.py --repeats 50 [--out results/benchmarks/epoch.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timing
import torch
import torch.nn.functional as F

from entropy_mcmc import models
from entropy_mcmc.data import Batches, Dataset
from entropy_mcmc.run.chain import Chain
from entropy_mcmc.run.chain_context import Context
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.devices import (
    make_fabric,
    seed_generators,
    setup,
    without_running_statistics,
)
from entropy_mcmc.run.methods import fill
from entropy_mcmc.run.model_and_data import build_problem
from entropy_mcmc.run.runner import open_posterior, resolve
from entropy_mcmc.samplers.kernel import compiled as fused

ROWS, BATCH = 384, 128  # short epochs: turns that follow closely meet the same machine
STEPS = ROWS // BATCH


def make_data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (ROWS, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (ROWS,), generator=generator)
    statistics_ = ((0.5,) * 3, (0.25,) * 3)
    return Dataset("random", images, labels, "classification", 10, *statistics_)


def make_chain(data: Dataset, folder: Path, fused: str) -> Chain:
    config = with_parts(
        RunConfig(run_dir=str(folder)),
        data={"batch_size": BATCH, "augmented": True},
        sampler={"fused": fused},
        schedule={"epochs": 2000, "burn_in": 0.0},  # noise at every step
    )
    fabric = make_fabric(config)
    problem = build_problem(config, models.resnet8, data)
    config, length = resolve(fill(config), problem, 1)
    model, module = setup(fabric, problem.model, config.compute)
    posterior = open_posterior(folder, config, problem, model)
    cycles = config.schedule.cycles or 1
    context = Context(config, problem, fabric, model, module, folder, posterior, length, cycles)
    module.train()
    return Chain(context, 0)


def plain_loop(data: Dataset) -> tuple[Callable[[], None], torch.optim.SGD]:
    model = models.resnet8()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    batches = Batches(data, BATCH, augmented=True)
    steps = iter(range(10**9))

    def step() -> None:
        x, y = batches.batch(next(steps))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step, optimizer


def epoch_of(chain: Chain) -> Callable[[], None]:
    def epoch() -> None:
        with without_running_statistics(chain.context.model):
            for _ in range(STEPS):
                chain.advance()
        chain.context.journal.append(chain.event())

    return epoch


def repeated(step: Callable[[], None]) -> Callable[[], None]:
    def epoch() -> None:
        for _ in range(STEPS):
            step()

    return epoch


def compare(
    chains: dict[str, Chain], sgd: Callable[[], None], repeats: int, cpu_time: bool
) -> dict[str, Any]:
    actions = {name: epoch_of(chain) for name, chain in chains.items()}
    times = timing.interleaved({**actions, "SGD": repeated(sgd)}, repeats, cpu_time=cpu_time)
    clock = "processor time" if cpu_time else "wall clock"
    rows = [
        timing.ratio(f"epoch: {name} / SGD, {clock}", times[name], times["SGD"], "≤ 1.05")
        for name in chains
    ]
    return {**timing.milliseconds(times), "rows": rows}


def parts(chains: dict[str, Chain], optimizer: torch.optim.SGD) -> dict[str, float]:
    """Processor milliseconds of what the two do differently; the chains are not used after it."""
    first = next(iter(chains.values()))
    actions: dict[str, Callable[[], object]] = {
        **{f"step of {name}": chain.sampler.step for name, chain in chains.items()},
        "step of SGD": optimizer.step,
        "generators set for a batch": lambda: seed_generators(2**62 + 1, first.context.fabric),
        "schedule": lambda: first.plan.apply(first.step),
    }
    times = timing.milliseconds(timing.interleaved(actions, 20, cpu_time=True))
    return {name: values["median_ms"] for name, values in times.items()}


def checkpoint(chain: Chain) -> dict[str, float]:
    """What a checkpoint costs, and its share of a run at the default of one a minute."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        chain.save()
        times.append(time.perf_counter() - began)
        chain.step += 1  # a new file
    every = chain.context.config.output.checkpoint_seconds
    cost = statistics.median(times)
    return {"ms": 1e3 * cost, "every_seconds": every, "share": cost / every, "target": 0.02}


def measure(repeats: int) -> dict[str, Any]:
    data = make_data()
    with tempfile.TemporaryDirectory() as folder:
        chains = {"EMCMC": make_chain(data, Path(folder) / "eager", "no")}
        if fused.available("cpu"):
            chains["EMCMC compiled"] = make_chain(data, Path(folder) / "compiled", "yes")
        sgd, optimizer = plain_loop(data)
        results = {
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
            "torch": torch.__version__,
            "load": os.getloadavg()[0],
            "repeats": repeats,
            "wall": compare(chains, sgd, repeats, cpu_time=False),
            "processor": compare(chains, sgd, repeats, cpu_time=True),
            "checkpoint": checkpoint(chains["EMCMC"]),
            "parts_ms": parts(chains, optimizer),
        }
        for chain in chains.values():
            chain.context.posterior.close()
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/epoch.json"))
    given = parser.parse_args()
    timed = measure(given.repeats)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(timed, indent=1) + "\n")
    print(timing.table([*timed["wall"]["rows"], *timed["processor"]["rows"]]))
    saved = timed["checkpoint"]
    print(
        f"\ncheckpoint: {saved['ms']:.1f} ms every {saved['every_seconds']:g} s: "
        f"{saved['share']:.3%} of a run (target ≤ 2 %)"
    )
    for name, value in timed["parts_ms"].items():
        print(f"{name}: {value:.3f} ms")
    print(f"{timed['machine']}, torch {timed['torch']}, load {timed['load']:.1f}: {given.out}")


if __name__ == "__main__":
    main()
