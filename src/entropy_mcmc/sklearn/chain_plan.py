"""`Plan`: the settings of a run of chains, checked, with all "auto" values filled in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from entropy_mcmc.sklearn.networks import Architecture

Network = tuple[tuple[int, ...], str]  # widths of the hidden layers, activation


@dataclass(frozen=True)
class Plan:
    """Everything that a run needs besides the data and the likelihood."""

    sizes: tuple[int, ...]
    activation: str
    chains: int
    steps: int
    samples: int  # kept of each chain
    batch: int
    lr: float
    momentum: float
    horizon: float  # steps over which a coupled guide would average; it sets η
    temperature: float
    prior_variance: float
    burn_in: float
    roles: str
    seed: int
    least_lr: float = 0.05  # of the first lr: a chain that stands still gives the same again

    def is_due(self, step: int) -> bool:
        """Whether the state after this step is kept: evenly spaced, the last one included."""
        first = math.ceil(self.burn_in * self.steps)
        after = step + 1 - first
        room = self.steps - first
        return after > 0 and after * self.samples // room > (after - 1) * self.samples // room

    def is_noisy(self, step: int) -> bool:
        """Whether this step has noise: the first half of burn-in only looks for a mode."""
        return 2 * step >= self.burn_in * self.steps

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the sampler's variables that are kept."""
        return ("theta", "guide") if self.roles == "both" else (self.roles,)

    @property
    def architecture(self) -> Architecture:
        """Form of one network."""
        return Architecture(self.sizes, self.activation)

    def using(self, network: Network) -> Plan:
        """The plan with other hidden layers between the same inputs and outputs."""
        hidden, activation = network
        return replace(self, sizes=(self.sizes[0], *hidden, self.sizes[-1]), activation=activation)

    def lr_at(self, step: int) -> float:
        """The learning rate falls by a cosine, to a small share of the first."""
        wave = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.lr * (self.least_lr + (1 - self.least_lr) * wave)
