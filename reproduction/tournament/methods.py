"""The methods: which trajectories each one needs, and what it reads off them.

A method's knobs (lr, prior variance, T, …) come from its recipe or from trials; its trajectories
are plain settings, so that methods whose settings agree share them in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tournament.scores import Answers, divided
from tournament.settings import Settings
from tournament.store import Store
from tournament.tasks import Task

Knobs = Mapping[str, Any]
SAMPLES = 8


@dataclass(frozen=True)
class Method:
    """One method.

    Attributes:
        name: In tables.
        optimizer: Of its trajectories.
        readout: What is read off each of them.
        chains: Trajectories; each has its share of the passes.
        kept: Networks kept of each trajectory, evenly spaced, the last always.
        fixed: Settings that belong to the method.
        open: Knobs that trials may change, as (low, high, logarithmic).
    """

    name: str
    optimizer: str
    readout: str
    chains: int = 1
    kept: int = SAMPLES
    fixed: dict[str, float] = field(default_factory=dict)
    open: tuple[str, ...] = ("lr", "prior_variance")


_SWA = {"floor": 0.2, "settle": 0.75}
_SNAPSHOTS = {"cycles": 4, "samples": 1, "noise_from": 0.5}
_NOISY = ("lr", "prior_variance", "temperature")
_GUIDED = (*_NOISY, "horizon")
_GAUSSIAN = (*_NOISY, "scale")
_ONE = {"samples": 1}

METHODS = {
    method.name: method
    for method in (
        Method("SGD", "sgd", "last"),
        Method("AdamW", "adamw", "last", open=("lr", "weight_decay")),
        Method("SWA", "sgd", "swa", fixed=_SWA),
        Method("EMA", "sgd", "ema", open=("lr", "prior_variance", "average")),
        Method("snapshots", "sgd", "samples", fixed=_SNAPSHOTS),
        Method("iterates", "sgd", "samples"),
        Method("SWAG", "sgd", "swag", fixed=_SWA),
        Method("Laplace", "sgd", "laplace", kept=32),
        Method("SGLD", "sgld", "samples", fixed={"momentum": 0.0}, open=_NOISY),
        Method("SGHMC", "sghmc", "samples", open=_NOISY),
        Method("EMCMC", "emcmc", "samples", open=_GUIDED),
        Method("guide", "emcmc", "guide", open=_GUIDED),
        Method("ensemble 2", "sgd", "last", chains=2),
        Method("ensemble 4", "sgd", "last", chains=4),
        Method("ensemble 8", "sgd", "last", chains=8),
        Method("iterates ×4", "sgd", "samples", chains=4, kept=4),
        Method("SGHMC ×4", "sghmc", "samples", chains=4, kept=4, open=_NOISY),
        Method("EMCMC ×4", "emcmc", "samples", chains=4, kept=4, open=_GUIDED),
    )
}
# Of the reproduction only: the leagues do not have them.
RIVALS = {
    method.name: method
    for method in (
        Method("SAM", "sam", "last", fixed=_ONE, open=("lr", "prior_variance", "rho")),
        Method("bSAM", "bsam", "draws", fixed=_ONE, open=(*_GAUSSIAN, "rho")),
        Method("IVON", "ivon", "draws", fixed=_ONE, open=_GAUSSIAN),
        Method("Entropy-SGD", "entropy-sgd", "last", fixed=_ONE),
        Method("Entropy-SGLD", "entropy-sgld", "samples", open=_NOISY),
    )
}
AUGMENTED = {
    f"{name}, augmented": replace(
        METHODS[name],
        name=f"{name}, augmented",
        fixed={**METHODS[name].fixed, "augmented": True},
    )
    for name in ("SGD", "SGHMC", "EMCMC", "ensemble 4")
}
FEW = (
    "SGD",
    "EMA",
    "iterates",
    "ensemble 4",
    "SGHMC",
    "EMCMC",
    "guide",
    "iterates ×4",
    "SGHMC ×4",
    "EMCMC ×4",
)
START = Method("AdamW start", "start", "last", open=())


def slug(name: str) -> str:
    """A method's name in names of files.

    >>> slug("EMCMC ×4, augmented")
    'EMCMC-x4-augmented'
    """
    return name.replace(", ", "-").replace(" ", "-").replace("×", "x")


def by_name(name: str) -> Method:
    """The method, of the leagues or of the reproduction only."""
    known = {**METHODS, **RIVALS, **AUGMENTED}
    if name not in known:
        raise ValueError(f"method must be one of {', '.join(known)}, got {name!r}")
    return known[name]


def methods_of(task: Task) -> list[Method]:
    """The methods that a task compares."""
    names = FEW if task.few else tuple(METHODS)
    methods = [METHODS[name] for name in names]
    if task.regression:
        methods = [method for method in methods if method.name != "Laplace"]
    return [*methods, START] if task.start else methods


def trajectories(
    method: Method, task: Task, seed: int, knobs: Knobs, share: float = 1.0
) -> list[Settings]:
    """Settings of the method's chains, which share `share` of the task's budget equally.

    The knob "length", 1 if it is not given, is the part of it after which the method stops.
    """
    if method.optimizer == "start":
        return [Settings(task.name, seed, "start", 0, 0)]
    values = {**method.fixed, **knobs}
    passes = values.pop("length", 1.0) * share * task.passes / method.chains
    return [
        Settings(task.name, seed, method.optimizer, passes, chain=chain, **values)  # type: ignore[arg-type]
        for chain in range(method.chains)
    ]


def thinned(outputs: np.ndarray, kept: int) -> np.ndarray:
    """`kept` of the networks, evenly spaced, the last always among them.

    >>> thinned(np.arange(8), 4).tolist()
    [1, 3, 5, 7]
    """
    count = len(outputs)
    if kept >= count:
        return outputs
    return outputs[[(i * count) // kept - 1 for i in range(1, kept + 1)]]


def answers(method: Method, runs: list[Settings], store: Store) -> Answers | None:
    """Outputs of all networks of the method; None if a chain diverged."""
    results = [store.read(settings) for settings in runs]
    if any(run.diverged for run in results):
        return None
    outputs = [thinned(run.outputs[method.readout], method.kept) for run in results]
    first = results[0]
    y = (first.outputs["validation_y"], first.outputs["test_y"])
    return divided(np.concatenate(outputs), first.record["test"], y)
