"""The tasks of docs/comparison.md: data, network, budget and half (development, confirmation)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from entropy_mcmc import models
from tournament import data
from tournament.data import Data
from tournament.tokens import Transformer, tokens

NOISE_VARIANCE = 0.1  # of standardised targets: the unit of T and of the prior in regression


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: Its name.
        half: "development" or "confirmation".
        rows: Function seed → data.
        train: Number of training rows, N.
        network: Function → untrained network.
        passes: Budget after the start, in passes.
        batch: Rows of a mini-batch.
        seeds: How many seeds judge it.
        start: Passes of AdamW before anything else; 0 starts from scratch.
        regression: Squared loss instead of cross entropy.
        few: Only the methods of the short list (expensive tasks).
        tried: Whether it is also in the league with trials.
        seconds: Forecast of one run at full budget: CPU seconds on one thread, seen on an AMD EPYC.
    """

    name: str
    half: str
    rows: Callable[[int], Data]
    train: int
    network: Callable[[], nn.Module]
    passes: float
    batch: int
    seeds: int
    start: float = 0.0
    regression: bool = False
    few: bool = False
    tried: bool = True
    seconds: float = 1.0


def _mlp(inputs: int, outputs: int, width: int = 50) -> Callable[[], nn.Module]:
    return partial(models.MLP, inputs, outputs, hidden=(width, width))


def _channels_last(make: Callable[[], nn.Module]) -> nn.Module:
    """The network in the layout in which convolutions are faster on a CPU."""
    return make().to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


_DIGITS = (partial(data.digits, 1150), 1150, partial(models.SmallCNN, image_size=8))


def _normed_digits(norm: str) -> tuple[Callable[[int], Data], int, Callable[[], nn.Module]]:
    return (*_DIGITS[:2], partial(models.SmallCNN, image_size=8, norm=norm))


_FASHION = partial(data.images, "fashion-mnist", 6000, ("mnist", "kmnist"))
_OOD = ("mnist", "kmnist", "notmnist")
_ALL_FASHION = (partial(data.images, "fashion-mnist", 59_000, _OOD), 59_000)  # 1,000 validate
_MNIST = partial(data.images, "mnist", 2000, ("fashion-mnist", "kmnist"))
_CIFAR = partial(data.images, "cifar10", 3000, ("svhn",))
_KIN8NM = partial(data.uci, "kin8nm", rows=4000)
_WINE = partial(data.uci, "wine-red", classes=True)
_TOKENS = (partial(tokens, 3000), 3000, Transformer)
# 1,000 pictures validate; all test pictures judge.
_CIFAR_ALL: dict[str, Any] = {"rows": 49_000, "ood": ("svhn",), "test": None, "ood_rows": None}
_BN_CNN = partial(_channels_last, partial(models.SmallCNN, norm="bn"))
_RESNET = partial(_channels_last, models.resnet8)
DEV, CONFIRM = "development", "confirmation"
PAPER = "paper"  # tasks of the reproduction only
# Of `--scale paper`: name, data set, outputs, normalisation.
AS_IN_THE_PAPER = (
    ("cifar10-paper", "cifar10", 10, "bn"),
    ("cifar10-paper-frn", "cifar10", 10, "frn"),
    ("cifar100-paper", "cifar100", 100, "bn"),
)


def _as_in_the_paper(name: str, source: str, outputs: int, norm: str) -> Task:
    """The paper's size: all pictures but those that validate, ResNet-18, 200 passes, for a GPU."""
    network = partial(_channels_last, partial(models.resnet18, outputs=outputs, norm=norm))
    rows = partial(data.images, source, **_CIFAR_ALL)
    return Task(name, PAPER, rows, 49_000, network, 200, 128, 3, tried=False, seconds=math.nan)


TASKS = {
    task.name: task
    for task in (
        Task("digits", DEV, *_DIGITS, 48, 64, 10, seconds=4),
        Task("breast-cancer", DEV, data.breast_cancer, 341, _mlp(30, 2), 48, 32, 10, seconds=1),
        Task(
            "concrete",
            DEV,
            partial(data.uci, "concrete"),
            618,
            _mlp(8, 1),
            96,
            32,
            10,
            regression=True,
            seconds=3,
        ),
        Task("fashion-mlp", DEV, _FASHION, 6000, _mlp(784, 10, 256), 48, 128, 10, seconds=24),
        Task("fashion-cnn", DEV, _FASHION, 6000, _BN_CNN, 24, 128, 5, tried=False, seconds=65),
        Task("adamw-digits", DEV, *_DIGITS, 24, 64, 10, start=24, seconds=2),
        Task("wine-red", CONFIRM, _WINE, 960, _mlp(11, 6), 48, 32, 10, seconds=2),
        Task("kin8nm", CONFIRM, _KIN8NM, 4000, _mlp(8, 1), 48, 64, 10, regression=True, seconds=4),
        Task(
            "cifar",
            CONFIRM,
            _CIFAR,
            3000,
            _RESNET,
            48,
            128,
            5,
            few=True,
            tried=False,
            seconds=390,
        ),
        Task("tokens", CONFIRM, *_TOKENS, 24, 64, 5, seconds=14),
        Task(
            "adamw-mnist",
            CONFIRM,
            _MNIST,
            2000,
            _mlp(784, 10, 256),
            24,
            64,
            10,
            start=24,
            seconds=8,
        ),
        Task("adamw-tokens", CONFIRM, *_TOKENS, 12, 64, 5, start=12, seconds=7),
        Task(
            "fashion-mlp-60k",
            PAPER,
            *_ALL_FASHION,
            _mlp(784, 10, 256),
            24,
            128,
            3,
            tried=False,
            seconds=118,
        ),
        Task(
            "fashion-cnn-60k", PAPER, *_ALL_FASHION, _BN_CNN, 12, 128, 3, tried=False, seconds=320
        ),
        Task(
            "mnist-cnn",
            PAPER,
            _MNIST,
            2000,
            partial(_channels_last, models.SmallCNN),
            24,
            64,
            5,
            tried=False,
            seconds=15,
        ),
        *(_as_in_the_paper(name, *rest) for name, *rest in AS_IN_THE_PAPER),
        Task("digits-bn", PAPER, *_normed_digits("bn"), 48, 64, 10, seconds=5),
        Task("digits-frn", PAPER, *_normed_digits("frn"), 48, 64, 10, seconds=6),
    )
}


def _corrupted(name: str, source: str, rows: int) -> Task:
    """A task that also asks about corruptions of its first test pictures."""
    clean = TASKS[name]
    asked = partial(data.corrupted, clean.rows, source, rows)
    return replace(clean, name=f"{name}-corrupted", half=PAPER, rows=asked, tried=False)


TASKS |= {
    task.name: task
    for task in (
        _corrupted("digits", "digits", 20),
        _corrupted("fashion-cnn", "fashion-mnist", 100),
        _corrupted("cifar10-paper", "cifar10", 1000),
    )
}
