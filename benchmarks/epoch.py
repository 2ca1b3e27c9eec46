"""An EMCMC epoch through the run engine against the same epoch with torch's SGD in a plain loop.

ResNet-8, batches of 128 images of CIFAR's shape, augmented. The two are timed in turns of a few
steps, so that a change of the machine's load meets both. Noise is on at every step.

    python benchmarks/epoch.py --rounds 10
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from entropy_mcmc import models
from entropy_mcmc.data import Batches, Dataset
from entropy_mcmc.run.chain import Chain, Context
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.devices import make_fabric, setup, without_running_statistics
from entropy_mcmc.run.engine import open_posterior, resolve
from entropy_mcmc.run.methods import fill
from entropy_mcmc.run.problem import build_problem

ROWS, BATCH, TURN = 1280, 128, 2


def make_data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (ROWS, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (ROWS,), generator=generator)
    statistics_ = ((0.5,) * 3, (0.25,) * 3)
    return Dataset("random", images, labels, "classification", 10, *statistics_)


def make_chain(data: Dataset, folder: Path) -> Chain:
    config = with_parts(
        RunConfig(run_dir=str(folder)),
        data={"batch_size": BATCH, "augmented": True},
        schedule={"epochs": 200, "burn_in": 0.0},  # noise at every step
    )
    fabric = make_fabric(config)
    problem = build_problem(config, models.resnet8, data)
    config, length = resolve(fill(config), problem.source, 1)
    model, module = setup(fabric, problem.model, config.compute)
    posterior = open_posterior(folder, config, problem, model)
    cycles = config.schedule.cycles or 1
    context = Context(config, problem, fabric, model, module, folder, posterior, length, cycles)
    module.train()
    return Chain(context, 0)


def plain_loop(data: Dataset) -> Callable[[], None]:
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

    return step


def seconds(step: Callable[[], None]) -> tuple[float, float]:
    """Wall clock and processor time of one step; the latter says more on a busy machine."""
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(TURN):
        step()
    return (time.perf_counter() - began) / TURN, (time.process_time() - worked) / TURN


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    data = make_data()
    with tempfile.TemporaryDirectory() as folder:
        chain, sgd = make_chain(data, Path(folder) / "run"), plain_loop(data)
        with without_running_statistics(chain.context.model):
            seconds(chain.advance), seconds(sgd)
            pairs = [(seconds(chain.advance), seconds(sgd)) for _ in range(rounds)]
        began = time.perf_counter()
        chain.save()
        save = time.perf_counter() - began
    every = chain.context.config.output.checkpoint_seconds
    print(f"threads {torch.get_num_threads()}, torch {torch.__version__}")
    for kind, name in enumerate(("wall clock", "processor")):
        for of, pick in (("median", statistics.median), ("fastest", min)):
            emcmc, plain = (pick([pair[i][kind] for pair in pairs]) for i in (0, 1))
            print(
                f"{name}, {of} of {rounds} turns: plain SGD step {plain * 1e3:.1f} ms, "
                f"EMCMC engine step {emcmc * 1e3:.1f} ms, ratio {emcmc / plain:.3f}"
            )
    print(f"checkpoint: {save * 1e3:.1f} ms every {every:g} s: {save / every:.3%} of a run")


if __name__ == "__main__":
    main()
