"""The compared methods on pictures: how each spends the same gradient budget, and its search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from entropy_mcmc import units
from entropy_mcmc.run.config import RunConfig, from_dict, with_parts
from entropy_mcmc.run.methods import METHODS
from entropy_mcmc_reproduction.jobs import Job
from entropy_mcmc_reproduction.pictures import IMAGES, NETWORK
from entropy_mcmc_reproduction.scale import Scale

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Entry:
    """One method of the tables.

    Attributes:
        label: Name in tables.
        method: Method of the run engine; None for IVON, which has its own loop.
        numbers: Hyper-parameters of the paper, or of its authors' code; the search replaces some.
        space: Searched hyper-parameters with their range, on a logarithmic scale.
        cyclical: Starts warm, runs in cycles and averages samples; else one long cosine.
        averages: Keeps several samples although it does not run in cycles.
        paired: Every collected step gives two samples, θ and its guide.
        in_paper: Among the methods of the paper, not added by us.
    """

    label: str
    method: str | None
    numbers: dict[str, Any]
    space: dict[str, tuple[float, float]] = field(default_factory=dict)
    cyclical: bool = False
    averages: bool = False
    paired: bool = False
    in_paper: bool = True


_SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
_RATE = {"lr": (0.01, 0.3)}
_HEAT = (1e-6, 1e-2)

ENTRIES: dict[str, Entry] = {
    "sgd": Entry("SGD", "sgd", _SGD, _RATE),
    "entropy-sgd": Entry(
        "Entropy-SGD",
        "entropy-sgd",
        {"inner_lr": 0.1, "temperature": 1e-4, "weight_decay": 5e-4},
        {"inner_lr": (0.03, 1.0), "width": (2.0, 50.0)},
    ),
    "sam": Entry("SAM", "sam", {**_SGD, "rho": 0.05}, {**_RATE, "rho": (0.01, 0.5)}),
    "bsam": Entry(
        "bSAM",
        "bsam",
        {"lr": 0.5, "rho": 0.01, "initial_scale": 0.5, "temperature": 1.0, "weight_decay": 5e-4},
        {"lr": (0.05, 1.0), "rho": (0.001, 0.1), "initial_scale": (0.5, 20.0)},
        averages=True,
    ),
    "sgld": Entry(
        "SGLD",
        "sgld",
        {"lr": 0.5, "temperature": 1e-4, "weight_decay": 5e-4},
        {"lr": (0.03, 1.0), "temperature": _HEAT},
        cyclical=True,
    ),
    "entropy-sgld": Entry(
        "Entropy-SGLD",
        "entropy-sgld",
        {"inner_lr": 0.1, "temperature": 1e-4, "weight_decay": 5e-4},
        {"inner_lr": (0.03, 1.0), "width": (2.0, 50.0), "temperature": _HEAT},
        cyclical=True,
    ),
    "emcmc": Entry(
        "EMCMC",
        "emcmc",
        {"lr": 0.5, "eta": 4e-4, "temperature": 1e-4, "weight_decay": 5e-4},
        {"lr": (0.06, 2.0), "horizon": (4.0, 100.0), "temperature": _HEAT},
        cyclical=True,
        paired=True,
    ),
    "snapshots": Entry("SGD snapshots", "sgd", _SGD, _RATE, cyclical=True, in_paper=False),
    "swa": Entry("SWA", "swa", _SGD, _RATE, in_paper=False),
    "ensemble": Entry("Deep ensemble", "ensemble", _SGD, _RATE, in_paper=False),
    "ivon": Entry(
        "IVON",
        None,
        {"lr": 0.2, "initial_hessian": 0.5, "weight_decay": 5e-4},
        {"lr": (0.02, 0.8), "initial_hessian": (0.5, 20.0)},
        averages=True,
        in_paper=False,
    ),
}
PAPER = tuple(name for name, entry in ENTRIES.items() if entry.in_paper)


def resolved(method: str, numbers: Numbers, rows: int) -> dict[str, Any]:
    """Options of the run engine: `horizon` and `width` are η in natural units.

    `horizon` is ηN/lr, the steps over which the guide averages; `width` is ηN/(inner lr · inner
    steps), how much wider the inner well is than what an inner chain can cross.
    """
    options: dict[str, Any] = {**ENTRIES[method].numbers, **numbers}
    if "horizon" in options:
        options["eta"] = units.eta_of_horizon(options.pop("horizon"), options["lr"], rows)
    if "width" in options:
        inner = options.get("inner_steps", 5) * options["inner_lr"]
        options["eta"] = units.eta_of_horizon(options.pop("width"), inner, rows)
    return options


# Classes of data sets that have not the networks' default of ten.
CLASSES = {"cifar100": {"outputs": 100}}


def config(
    method: str, seed: int, chosen: Scale, numbers: Numbers, part: float = 1.0
) -> dict[str, Any]:
    """The complete config of a run."""
    entry = ENTRIES[method]
    rows = chosen.data.get("rows") or 50_000
    warm = _warm(chosen, part) if entry.cyclical else 0
    epochs = round(chosen.epochs * part) - warm
    chains = 4 if method == "ensemble" else 1
    return {
        "method": entry.method,
        "seed": seed,
        "chains": chains,
        "log_every": 25,
        "model": {
            "name": NETWORK,
            "options": {"name": chosen.model, **CLASSES.get(chosen.data["name"], {})},
        },
        "data": {
            "name": IMAGES,
            "options": dict(chosen.data),
            "batch_size": chosen.batch_size,
            "augmented": chosen.augmented,
            "ood": list(chosen.ood),
        },
        "sampler": {**resolved(method, numbers, rows), "fused": "no"},
        "schedule": _schedule(entry, chosen, epochs // chains, rows),
        "compute": {"threads": chosen.threads},
    }


def run_config(content: Mapping[str, Any]) -> RunConfig:
    """The run of a job's config, with what the paper says where the library's recipe says else.

    EMCMC: θ and its guide are kept, coupled from the first step on, without momentum.
    """
    config = from_dict(content)
    if config.method != "emcmc":
        return config
    given = config.sampler.momentum
    return with_parts(
        replace(config, roles=config.roles or "both"),
        sampler={"momentum": 0.0 if given is None else given},
        schedule={"coupled": config.schedule.coupled or "always"},
    )


def _warm(chosen: Scale, part: float) -> int:
    return round(chosen.warm_epochs * part)


def _schedule(entry: Entry, chosen: Scale, epochs: int, rows: int) -> dict[str, Any]:
    if entry.cyclical:
        cycles, burn_in = chosen.cycles, chosen.burn_in
        wanted = chosen.samples // cycles // (2 if entry.paired else 1)
    elif entry.averages:
        cycles, burn_in, wanted = 1, 0.9, chosen.samples
    else:
        return {"epochs": epochs}
    steps = epochs * (rows // chosen.batch_size) // _gradients(entry) // cycles
    noisy = steps - math.ceil(burn_in * steps)
    return {
        "epochs": epochs,
        "cycles": cycles,
        "burn_in": burn_in,
        # Nested methods make few steps: in a short search there may be no room for all samples.
        "samples_per_cycle": max(1, min(wanted, noisy)),
    }


def _gradients(entry: Entry) -> int:
    return METHODS[entry.method].gradients if entry.method else 1


def warm_job(seed: int, chosen: Scale, numbers: Numbers, part: float, group: str) -> Job | None:
    """The SGD run from which the cyclical methods of a seed start; None if there is none."""
    epochs = _warm(chosen, part)
    if not epochs:
        return None
    name = f"{group}/warm-{seed}"
    made = config("sgd", seed, chosen, numbers, part)
    made["schedule"] = {"epochs": epochs}
    settings = {"name": name, "config": made, "start": None, "measure": {}, "discard": False}
    return Job(name, "tasks:sample", settings)


def job(
    method: str,
    seed: int,
    chosen: Scale,
    numbers: Numbers,
    *,
    group: str = "cifar",
    label: str | None = None,
    part: float = 1.0,
    warm_numbers: Numbers | None = None,
    measure: Mapping[str, Any] | None = None,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    keep: bool = False,
) -> Job:
    """The job of one method and seed.

    `changes` replaces entries of the config's parts; `label` names a variant; `warm_numbers` are
    those of the SGD run at its start; `keep` keeps the weights.
    """
    entry = ENTRIES[method]
    name = f"{group}/{label or method}-{seed}"
    made = config(method, seed, chosen, numbers, part)
    for where, values in (changes or {}).items():
        made[where] = {**made[where], **values}
    start = None
    if entry.cyclical:
        start = warm_job(seed, chosen, warm_numbers or {}, part, _warm_group(group, changes))
    if start is not None:
        # Another order of the data than in the warm start.
        made["seed"] = seed + 1000
        start = _changed(start, changes)
    settings = {
        "name": name,
        "config": made,
        "start": start.name if start else None,
        "measure": dict(measure or {}),
        "discard": not keep,
    }
    task = "ivon:train" if entry.method is None else "tasks:sample"
    return Job(name, task, settings, (start,) if start else ())


# Changes that alter the network or the data alter the warm start too.
_SHARED_PARTS = ("model", "data")


def _warm_group(group: str, changes: Mapping[str, Mapping[str, Any]] | None) -> str:
    shared = {p: v for p, v in (changes or {}).items() if p in _SHARED_PARTS}
    return f"{group}/{_slug(shared)}" if shared else group


def _slug(changes: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [f"{key}-{value}" for values in changes.values() for key, value in values.items()]
    kept = "-".join(parts).lower()
    return "".join(c if c.isalnum() else "-" for c in kept).strip("-").replace("--", "-")


def _changed(start: Job, changes: Mapping[str, Mapping[str, Any]] | None) -> Job:
    made = dict(start.settings["config"])
    for where in _SHARED_PARTS:
        if changes and where in changes:
            made[where] = {**made[where], **changes[where]}
    return Job(start.name, start.task, {**start.settings, "config": made}, start.after)
