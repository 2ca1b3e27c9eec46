"""The tasks of docs/comparison.md: data, network, budget and half (development, confirmation)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
        network: Function → untrained network.
        passes: Budget after the start, in passes.
        batch: Rows of a mini-batch.
        seeds: How many seeds judge it.
        start: Passes of AdamW before anything else; 0 starts from scratch.
        regression: Squared loss instead of cross entropy.
        few: Only the methods of the short list (expensive tasks).
        seconds: Forecast of one run at full budget, one thread.
    """

    name: str
    half: str
    rows: Callable[[int], Data]
    network: Callable[[], nn.Module]
    passes: float
    batch: int
    seeds: int
    start: float = 0.0
    regression: bool = False
    few: bool = False
    seconds: float = 1.0


def _mlp(inputs: int, outputs: int, width: int = 50) -> Callable[[], nn.Module]:
    return partial(models.MLP, inputs, outputs, hidden=(width, width))


_DIGITS = (partial(data.digits, 1150), partial(models.SmallCNN, image_size=8))
_FASHION = partial(data.images, "fashion-mnist", 6000, ("mnist", "kmnist"))
_MNIST = partial(data.images, "mnist", 2000, ("fashion-mnist", "kmnist"))
_CIFAR = partial(data.images, "cifar10", 3000, ("svhn",))
_KIN8NM = partial(data.uci, "kin8nm", rows=4000)
_WINE = partial(data.uci, "wine-red", classes=True)
_TOKENS = (partial(tokens, 3000), Transformer)
_BN_CNN = partial(models.SmallCNN, norm="bn")
DEV, CONFIRM = "development", "confirmation"

TASKS = {
    task.name: task
    for task in (
        Task("digits", DEV, *_DIGITS, 48, 64, 10, seconds=4),
        Task("breast-cancer", DEV, data.breast_cancer, _mlp(30, 2), 48, 32, 10, seconds=1),
        Task(
            "concrete",
            DEV,
            partial(data.uci, "concrete"),
            _mlp(8, 1),
            96,
            32,
            10,
            regression=True,
            seconds=3,
        ),
        Task("fashion-mlp", DEV, _FASHION, _mlp(784, 10, 256), 48, 128, 10, seconds=30),
        Task("fashion-cnn", DEV, _FASHION, _BN_CNN, 24, 128, 5, seconds=90),
        Task("adamw-digits", DEV, *_DIGITS, 24, 64, 10, start=24, seconds=4),
        Task("wine-red", CONFIRM, _WINE, _mlp(11, 6), 48, 32, 10, seconds=2),
        Task("kin8nm", CONFIRM, _KIN8NM, _mlp(8, 1), 48, 64, 10, regression=True, seconds=4),
        Task("cifar", CONFIRM, _CIFAR, models.resnet8, 48, 128, 5, few=True, seconds=360),
        Task("tokens", CONFIRM, *_TOKENS, 24, 64, 5, seconds=40),
        Task("adamw-mnist", CONFIRM, _MNIST, _mlp(784, 10, 256), 24, 64, 10, start=24, seconds=15),
        Task("adamw-tokens", CONFIRM, *_TOKENS, 12, 64, 5, start=12, seconds=40),
    )
}
