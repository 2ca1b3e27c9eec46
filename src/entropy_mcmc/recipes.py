"""Recipes: (model, N, batch size, budget in passes, start) → complete settings, with reasons.

Pure functions. Each returns a frozen `Recipe` whose `str` is a table of values and reasons; every
value can be overridden. The values come from the development tasks of `docs/comparison.md`.

>>> import torch
>>> print(from_scratch(torch.nn.Linear(50, 2), num_data=1000, batch_size=50, passes=40))
recipe "from scratch": EMCMC, 40 passes over 1000 examples, gradients of 50
lr              0.1         that of SGD with momentum, for the mean loss
momentum        0.9         without it the chain learns at a tenth of the speed
prior_variance  0.4         20 over the mean fan-in of 50, whatever N; weight decay 0.0025
temperature     0.02        warm enough to move, cold enough to predict well
eta             0.016       the guide averages θ over ηN/lr = 160 steps, 20% of a chain
steps           800         40 passes, one cosine for each chain
chains          1           one long chain; several give more where a part of the budget fits
burn_in         0.5         noise in the second half, while lr still moves θ
samples         8           evenly spaced over the noisy part; one forward pass each
coupled         noisy       burn-in is plain SGD at its full speed; θ_a starts as θ after it
roles           theta       the guide carries √(ηT) of noise: θ predicts better
warm_up         0           no linear layer has more than 1000 inputs
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from entropy_mcmc.errors import ConfigError, check_count, check_positive
from entropy_mcmc.priors import Model, mean_fan_in, prior_groups
from entropy_mcmc.units import auto_horizon, eta_of_horizon, horizon, weight_decay

__all__ = [
    "Recipe",
    "adapters",
    "from_scratch",
    "from_trained",
    "mean_fan_in",
    "prior_groups",
    "short_chains",
]

SGD_LR = 0.1  # with momentum 0.9, for the mean loss
FAN_IN_VARIANCE = 20.0  # prior variance × mean fan-in
SHORT = 24  # passes of a chain that needs most of them to get there
LEAST_STEPS = 100  # of a chain; with fewer the cosine has no time to learn
TUNED_LR = 0.04  # where a trained network must keep its basin
WIDE = 1000  # inputs of a linear layer above which SGD's first steps overshoot
WARM_UP = 0.05  # of a chain; then they do not
MOMENTUM = 0.9
TEMPERATURE = 0.02
# Lr of each method as a multiple of SGD's; the other methods of a run only share the prior.
LRS = {
    **dict.fromkeys(("sgd", "ensemble", "swa", "sam", "sghmc", "emcmc"), 1.0),
    "sgld": 4.0,  # without momentum it moves at a tenth of the speed
}
NOISY = ("emcmc", "sghmc", "sgld")


@dataclass(frozen=True)
class Recipe:
    """Settings of a run of EMCMC, and why each value was chosen.

    Attributes:
        name: Of the recipe.
        num_data: N.
        batch_size: Examples of one gradient.
        passes: Budget over all chains, in passes over the data.
        lr: Peak learning rate for the mean loss; it falls to 0 along one cosine.
        momentum: μ.
        prior_variance: Of every weight.
        temperature: T.
        eta: η.
        steps: Of each chain.
        chains: Independent chains; each has its share of the passes.
        burn_in: Part of a chain without noise and samples.
        coupled: When θ and θ_a are: "noisy", after burn-in, or "always".
        samples: Kept of each chain.
        roles: Which variable is kept: "theta", "guide" or "both".
        warm_up: Part of a chain in which lr rises to its peak.
        unit: Energy of one unit of the mean loss: the noise variance for a plain squared loss.
        reasons: By name of the value.
    """

    name: str
    num_data: int
    batch_size: int
    passes: float
    lr: float
    momentum: float
    prior_variance: float
    temperature: float
    eta: float
    steps: int
    chains: int
    burn_in: float
    samples: int
    coupled: str = "noisy"
    roles: str = "theta"
    warm_up: float = 0.0
    unit: float = 1.0
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def weight_decay(self) -> float:
        """λ that the prior is for the mean loss: 1/(N·variance), times the unit of energy."""
        return weight_decay(self.prior_variance, self.num_data) * self.unit

    @property
    def horizon(self) -> float:
        """ηN/lr at peak lr, in steps; momentum shortens it to (1−μ) of that."""
        return horizon(self.lr, self.num_data, self.eta)

    def sampler_options(self) -> dict[str, Any]:
        """Arguments of `EntropyMCMC` after the parameters."""
        return {
            "lr": self.lr,
            "num_data": self.num_data,
            "eta": self.eta,
            "temperature": self.temperature * self.unit,
            "prior_variance": self.prior_variance / self.unit,
            "momentum": self.momentum,
        }

    def schedule_options(self) -> dict[str, Any]:
        """Arguments of `schedules.Cyclical` after the sampler, for one chain."""
        return {"total_steps": self.steps, **self.cycle_options()}

    def cycle_options(self) -> dict[str, Any]:
        """The same without the number of steps, which the integrations' `CollectSamples` know."""
        samples = {"samples_per_cycle": self.samples, "coupled": self.coupled}
        return {"cycles": 1, "burn_in": self.burn_in, **samples, "warm_up": self.warm_up}

    def settings(self, method: str) -> dict[str, Any]:
        """Hyper-parameters of a method of `emcmc sample` with the same prior, speed and heat.

        >>> import torch
        >>> made = from_scratch(torch.nn.Linear(50, 2), 1000, 50, passes=40)
        >>> made.settings("sgd")
        {'prior_variance': 0.4, 'lr': 0.1, 'momentum': 0.9}
        """
        values = {"prior_variance": self.prior_variance / self.unit}
        if method in LRS:
            values["lr"] = LRS[method] * self.lr
            if method != "sgld":
                values["momentum"] = self.momentum
        if method in NOISY:
            values["temperature"] = self.temperature * self.unit
        return values

    def override(self, **values: Any) -> Recipe:
        """The recipe with values of your own; a new lr keeps the horizon in steps.

        >>> import torch
        >>> net = torch.nn.Linear(2, 2)
        >>> from_scratch(net, 100, 10, passes=40).override(temperature=1.0).reasons["temperature"]
        'given'
        """
        unknown = sorted(set(values) - set(SHOWN))
        if unknown:
            raise ConfigError(f"override knows {', '.join(SHOWN)}, got {unknown[0]!r}")
        reasons = {**self.reasons, **dict.fromkeys(values, "given")}
        if "lr" in values and "eta" not in values:
            rate = check_positive("lr", values["lr"])
            values["eta"] = eta_of_horizon(self.horizon, rate, self.num_data)
        return replace(self, **values, reasons=reasons)

    def __str__(self) -> str:
        budget = f"{self.passes:g} passes over {self.num_data} examples"
        head = f'recipe "{self.name}": EMCMC, {budget}, gradients of {self.batch_size}'
        rows = [
            f"{name:<16}{_shown(getattr(self, name)):<12}{self.reasons.get(name, '')}".rstrip()
            for name in SHOWN
        ]
        return "\n".join([head, *rows])


SHOWN = tuple(
    entry.name
    for entry in fields(Recipe)
    if entry.name not in ("name", "num_data", "batch_size", "passes", "unit", "reasons")
)


def from_scratch(
    model: Model,
    num_data: int,
    batch_size: int,
    passes: float,
    *,
    chains: int = 1,
    unit: float = 1.0,
    steps_per_pass: int | None = None,
) -> Recipe:
    """Settings for an untrained network: SGD for half of a cosine, then coupling and noise.

    Args:
        model: The network, for the fan-in of its layers.
        num_data: N, the number of training examples.
        batch_size: Examples of one gradient.
        passes: Gradient budget over all chains, in passes over the data.
        chains: Independent chains that share the budget.
        unit: 1 for a likelihood; the noise variance for half the squared error.
        steps_per_pass: `len(loader)`, if the loop is yours; N over the batch size by default.
    """
    steps = steps_of(num_data, batch_size, passes, chains, steps_per_pass)
    variance, reason = prior(model, num_data, unit)
    burn_in = 0.5 if passes / chains > SHORT else 0.75
    averaged = auto_horizon(steps, burn_in, MOMENTUM)
    samples = min(8 if chains == 1 else 4, steps - math.ceil(burn_in * steps))
    widest = widest_linear(model)
    one = "one long chain; several give more where a part of the budget fits"
    late = f"noise in the last quarter: {SHORT} passes or fewer are short"
    reasons = {
        "lr": "that of SGD with momentum, for the mean loss",
        "momentum": "without it the chain learns at a tenth of the speed",
        "prior_variance": reason,
        "temperature": "warm enough to move, cold enough to predict well",
        "eta": _horizon_reason(averaged, steps),
        "steps": f"{passes / chains:g} passes, one cosine for each chain",
        "chains": one if chains == 1 else "independent networks: best for OOD",
        "burn_in": late if burn_in > 0.5 else "noise in the second half, while lr still moves θ",
        "coupled": "burn-in is plain SGD at its full speed; θ_a starts as θ after it",
        "samples": "evenly spaced over the noisy part; one forward pass each",
        "roles": "the guide carries √(ηT) of noise: θ predicts better",
    }
    wide = f"a linear layer has {widest} inputs: first steps would overshoot"
    reasons["warm_up"] = wide if widest > WIDE else f"no linear layer has more than {WIDE} inputs"
    return Recipe(
        "from scratch" if chains == 1 else "short chains",
        num_data,
        batch_size,
        passes,
        lr=SGD_LR,
        momentum=MOMENTUM,
        prior_variance=variance,
        temperature=TEMPERATURE,
        eta=eta_of_horizon(averaged, SGD_LR, num_data),
        steps=steps,
        chains=chains,
        burn_in=burn_in,
        samples=samples,
        warm_up=WARM_UP if widest > WIDE else 0.0,
        unit=check_positive("unit", unit),
        reasons=reasons,
    )


def short_chains(
    model: Model,
    num_data: int,
    batch_size: int,
    passes: float,
    *,
    chains: int | None = None,
    unit: float = 1.0,
    steps_per_pass: int | None = None,
) -> Recipe:
    """Settings for independent chains that share the budget: four, or fewer if it is short."""
    if chains is None:
        longest = steps_of(num_data, batch_size, passes, 1, steps_per_pass)
        chains = max(1, min(4, longest // LEAST_STEPS))
    own: Any = {"chains": chains, "unit": unit, "steps_per_pass": steps_per_pass}
    return from_scratch(model, num_data, batch_size, passes, **own)


def from_trained(
    model: Model,
    num_data: int,
    batch_size: int,
    passes: float,
    *,
    chains: int = 1,
    unit: float = 1.0,
    steps_per_pass: int | None = None,
) -> Recipe:
    """Settings for a network trained by SGD, Adam or AdamW: it stays in its basin, and moves."""
    own: Any = {"chains": chains, "unit": unit, "steps_per_pass": steps_per_pass}
    base = from_scratch(model, num_data, batch_size, passes, **own)
    lr, burn_in = TUNED_LR, 0.75
    averaged = auto_horizon(base.steps, burn_in, base.momentum)
    reasons = {
        **base.reasons,
        "lr": f"less than the {SGD_LR:g} from scratch: the network keeps its basin",
        "eta": _horizon_reason(averaged, base.steps),
        "burn_in": "three quarters settle under the prior; then noise",
        "warm_up": "the network has left its first steps behind",
    }
    return replace(
        base,
        name="from a trained network",
        lr=lr,
        eta=eta_of_horizon(averaged, lr, num_data),
        burn_in=burn_in,
        warm_up=0.0,
        samples=min(base.samples, base.steps - math.ceil(burn_in * base.steps)),
        reasons=reasons,
    )


def adapters(
    model: Model,
    num_data: int,
    batch_size: int,
    passes: float,
    *,
    chains: int = 1,
    unit: float = 1.0,
    steps_per_pass: int | None = None,
) -> Recipe:
    """Settings for adapters (LoRA) on a frozen network; pass the module of trainable parameters.

    Not in the tournament: SGD's lr and a late noisy part, with a prior variance of at most 1. With
    the lr of a trained network the adapters of `examples/fine_tune_lora.py` learned too little.
    """
    own: Any = {"chains": chains, "unit": unit, "steps_per_pass": steps_per_pass}
    variance = min(1.0, prior(model, num_data, unit)[0])
    decay = weight_decay(variance, num_data) * unit
    reasons = {
        "lr": "that of SGD: adapters start at 0, and the frozen network keeps its place",
        "prior_variance": f"at most 1: adapters start at 0; weight decay {decay:.2g}",
    }
    base = from_trained(model, num_data, batch_size, passes, **own).override(lr=SGD_LR)
    return replace(
        base, name="adapters", prior_variance=variance, reasons={**base.reasons, **reasons}
    )


def prior(model: Model, num_data: int, unit: float = 1.0) -> tuple[float, str]:
    """Prior variance of every weight from the mean fan-in, and the reason in words."""
    fan_in = mean_fan_in(model) or FAN_IN_VARIANCE
    variance = float(f"{FAN_IN_VARIANCE / fan_in:.3g}")
    decay = weight_decay(variance, num_data) * unit
    rule = f"{FAN_IN_VARIANCE:g} over the mean fan-in of {fan_in:.3g}, whatever N"
    return variance, f"{rule}; weight decay {decay:.2g}"


def widest_linear(model: Model) -> int:
    """Most inputs of a trainable linear layer; 0 without one.

    >>> import torch
    >>> widest_linear(torch.nn.Sequential(torch.nn.Conv2d(512, 8, 3), torch.nn.Linear(1568, 10)))
    1568
    """
    return max(
        (p.shape[1] for p in model.parameters() if p.requires_grad and p.dim() == 2), default=0
    )


def steps_of(
    num_data: int, batch_size: int, passes: float, chains: int, steps_per_pass: int | None = None
) -> int:
    """Steps of each chain that the budget pays for."""
    rows, batch = check_count("num_data", num_data), check_count("batch_size", batch_size)
    if steps_per_pass is not None:
        rows = batch * check_count("steps_per_pass", steps_per_pass)
    steps = int(check_positive("passes", passes) * rows // (batch * check_count("chains", chains)))
    if steps < 2:
        raise ConfigError(
            f"passes={passes:g} over num_data={num_data} pay for {steps} steps of batch_size="
            f"{batch_size} in each of {chains} chains, and 2 are needed; use more passes"
        )
    return steps


def _horizon_reason(averaged: float, steps: int) -> str:
    share = f"{averaged / steps:.0%} of a chain"
    return f"the guide averages θ over ηN/lr = {averaged:.3g} steps, {share}"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
