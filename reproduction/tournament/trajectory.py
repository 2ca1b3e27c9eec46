"""One trajectory from settings to predictions: the only place where networks are trained."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_mcmc.data import order
from entropy_mcmc.errors import NonFiniteError
from tournament import readouts, schedule
from tournament.augmentation import augmented
from tournament.data import Data, Rows
from tournament.ivon import IVON
from tournament.optimizers import build, peak_lr
from tournament.settings import Settings
from tournament.tasks import TASKS, Task

START_LR, START_DECAY = 1e-3, 1e-2  # AdamW's own defaults


@dataclass
class Run:
    """What a trajectory leaves behind.

    Attributes:
        outputs: By readout ("last", "samples", "ema", …): outputs of networks, (networks, rows,
            outputs), rows in the order validation, test, OOD.
        weights: The last networks ("theta", "ema", "guide"), each one vector.
        cost: Examples passed forward and backward, refresh included, AdamW start not.
        seconds: Wall time.
        train_loss: Mean loss over the last tenth of the steps.
        diverged: Whether a number stopped being finite; then there are no outputs.
    """

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    cost: float = 0.0
    seconds: float = 0.0
    train_loss: float = float("nan")
    diverged: bool = False


def run(settings: Settings) -> Run:
    """Make the trajectory of these settings."""
    task, begin = TASKS[settings.task], time.perf_counter()
    split, model = data_of(task.name, settings.seed), network(settings)
    made = Run()
    if settings.optimizer == "start":
        made.outputs["last"] = readouts.ask(model, split)[None]
    else:
        try:
            _go(settings, task, split, model, made)
        except (NonFiniteError, FloatingPointError):
            made = Run(diverged=True, cost=made.cost)
    made.seconds = time.perf_counter() - begin
    return made


@lru_cache(maxsize=2)
def data_of(task: str, seed: int) -> Data:
    """Rows of a task, read once, on the device."""
    return TASKS[task].rows(seed).to(device())


def device() -> torch.device:
    """Where networks are trained: $EMCMC_DEVICE, else a GPU if there is one."""
    return torch.device(
        os.environ.get("EMCMC_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    )


def network(settings: Settings) -> nn.Module:
    """The network at the first step: new, trained by AdamW, or the last of another trajectory."""
    task = TASKS[settings.task]
    if settings.after is not None:
        model = task.network().to(device())
        model.load_state_dict(_ended(settings.after)[0])
        return model
    chain = 0 if task.start else settings.chain  # there is one AdamW network for all chains
    torch.manual_seed(100_003 * settings.seed + chain)
    model = task.network().to(device())
    if task.start:
        model.load_state_dict(_started(task.name, settings.seed))
    return model


@lru_cache(maxsize=2)
def _started(name: str, seed: int) -> dict[str, Tensor]:
    task, split = TASKS[name], data_of(name, seed)
    torch.manual_seed(100_003 * seed)
    model = task.network().to(device())
    settings = Settings(
        name, seed, "adamw", task.start, START_LR, chain=999, weight_decay=START_DECAY
    )
    steps = schedule.steps_of(task.start, len(split.train.x), task.batch)
    optimizer = build(settings, task, model.parameters(), len(split.train.x), steps)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = START_LR * schedule.lr_factor(settings, step, steps)
        learn(model, optimizer, *batch(split.train, task.batch, settings, step), task)
    return model.state_dict()


@lru_cache(maxsize=1)
def _ended(settings: Settings) -> tuple[dict[str, Tensor], float]:
    """The last network of a trajectory, and its cost."""
    model, made = network(settings), Run()
    _go(settings, TASKS[settings.task], data_of(settings.task, settings.seed), model, made)
    return model.state_dict(), made.cost


def batch(rows: Rows, size: int, settings: Settings, step: int) -> tuple[Tensor, Tensor]:
    """Rows of one step: a new order for each pass, of its own for each chain."""
    per_pass = len(rows.x) // size
    epoch, place = divmod(step, per_pass)
    chosen = _order(batch_seed(settings), epoch, len(rows.x))[place * size : (place + 1) * size]
    return rows.x[chosen], rows.y[chosen]


_order = lru_cache(maxsize=2)(order)  # a pass asks for the same order at every step


def batch_seed(settings: Settings) -> int:
    """Seed of the order of rows, and of their augmentation."""
    return 1_000_000 + 1000 * settings.seed + settings.chain


def fed(split: Data, size: int, settings: Settings, step: int) -> tuple[Tensor, Tensor]:
    """What the network sees at a step: a batch, augmented if the settings say so."""
    x, y = batch(split.train, size, settings, step)
    if settings.augmented:
        x = augmented(x, split.black, batch_seed(settings), step)
    return x, y


def loss_of(outputs: Tensor, targets: Tensor, regression: bool) -> Tensor:
    """Cross entropy, or half the squared error; the mean over the batch."""
    if regression:
        return 0.5 * F.mse_loss(outputs[:, 0], targets)
    return F.cross_entropy(outputs, targets)


def learn(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, task: Task
) -> float:
    """Make one step on a mini-batch; returns its loss."""
    optimizer.zero_grad()
    loss = loss_of(model(x), y, task.regression)
    loss.backward()
    optimizer.step()
    value = float(loss.detach())
    if not np.isfinite(value):
        raise FloatingPointError(f"loss {value}")
    return value


def advance(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: Settings,
    split: Data,
    task: Task,
    step: int,
) -> float:
    """Make one step, with as many gradients as the optimizer takes; returns its first loss.

    The nested methods take a new batch for each gradient, SAM and bSAM one for both.
    """
    if not (isinstance(optimizer, IVON) or getattr(optimizer, "needs_closure", False)):
        return learn(model, optimizer, *fed(split, task.batch, settings, step), task)
    fresh = settings.inner_steps or 1
    batches = [fed(split, task.batch, settings, fresh * step + i) for i in range(fresh)]
    losses: list[float] = []

    def closure() -> Tensor:
        x, y = batches[len(losses) % fresh]
        optimizer.zero_grad()
        loss = loss_of(model(x), y, task.regression)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()))
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    if not np.isfinite(losses).all():
        raise FloatingPointError(f"losses {losses}")
    assert len(losses) == settings.gradients_per_step
    return losses[0]


def _go(settings: Settings, task: Task, split: Data, model: nn.Module, made: Run) -> None:
    rows = len(split.train.x)
    norm = readouts.has_batchnorm(model)
    refreshed = schedule.refresh_rows(settings.passes, task.passes, rows) if norm else 0
    gradients = schedule.steps_of(settings.passes, rows, task.batch, refreshed)
    steps = max(1, gradients // settings.gradients_per_step)
    recorder = readouts.Recorder(settings, split, model, steps, refreshed)
    losses = []
    for step, optimizer, loss in followed(settings, task, split, model, steps):
        losses.append(loss)
        recorder.after(step, optimizer)
    made.cost = steps * settings.gradients_per_step * task.batch + refreshed / 3
    if settings.after is not None:
        made.cost += _ended(settings.after)[1]
    made.train_loss = float(np.mean(losses[-max(1, steps // 10) :]))
    made.outputs, made.weights = recorder.outputs(optimizer), recorder.weights(optimizer)
    if not all(np.isfinite(values).all() for values in made.outputs.values()):
        raise FloatingPointError("outputs are not finite")


def followed(
    settings: Settings, task: Task, split: Data, model: nn.Module, steps: int
) -> Iterator[tuple[int, torch.optim.Optimizer, float]]:
    """Train the network, and stop after every step: its number, the optimizer, its loss."""
    optimizer = build(settings, task, model.parameters(), len(split.train.x), steps)
    for step in range(steps):
        drive(optimizer, settings, step, steps)
        yield step, optimizer, advance(model, optimizer, settings, split, task, step)


def drive(optimizer: torch.optim.Optimizer, settings: Settings, step: int, steps: int) -> None:
    """Give the optimizer the lr of a step, and switch noise and coupling."""
    for group in optimizer.param_groups:
        group["lr"] = peak_lr(settings) * schedule.lr_factor(settings, step, steps)
        noisy = schedule.is_noisy(settings, step, steps)
        if "noise" in group:
            group["noise"] = noisy
        if "coupled" in group:
            group["coupled"] = noisy or settings.coupled == "always"
