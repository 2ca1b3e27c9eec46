"""One reading of the coupling thermometer; several pooled over groups, or averaged over steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from entropy_mcmc.errors import StateError


@dataclass(frozen=True)
class Reading:
    """What the thermometer showed at one step.

    Attributes:
        step: Of the sampler.
        size: Number d of coordinates (the effective one, if groups differ in temperature).
        observed: ‖θ−θ_a‖²/(dη).
        expected: Its expectation at the claimed temperature, without mini-batch noise.
        per_variance: Its expectation per unit of V = N²·Var(ĝ): mini-batch heat is V times this.
        per_independent: The same if mini-batches were drawn independently, not epoch by epoch.
        temperature: T that the sampler claims.
        alpha: lr/N of the last step, over 1−μ where θ moves alone: αV/2 is its mini-batch heat.
        clock: −log of the correlation of θ−θ_a with a reference time; differences of clocks give
            the correlation of two readings.
        rule: guide_update, "mixed" if the groups differ.
        replicas: Number y of networks that share the guide; the gap is that of their mean.
        lag: Share of the variance that may still be missing in stiff directions. There the loss
            holds θ, θ_a alone moves, and the gap relaxes half as fast as `expected` supposes.
    """

    step: int
    size: int
    observed: float
    expected: float
    per_variance: float
    temperature: float
    alpha: float
    clock: float
    rule: str
    per_independent: float = 0.0
    replicas: int = 1
    lag: float = 0.0

    @property
    def ratio(self) -> float:
        """Observed over expected: 1 for a chain at its temperature with exact gradients."""
        return self.observed / self.expected

    @property
    def error(self) -> float:
        """Standard error of `ratio` at 1: √(2/d)."""
        return math.sqrt(2 / self.size)

    @property
    def measured(self) -> float:
        """The temperature that this reading shows, T·ratio."""
        return self.temperature * self.ratio

    def __str__(self) -> str:
        shown, error = self.measured, self.temperature * self.error
        return f"step {self.step}: {shown:.4g} ± {error:.1g} against T = {self.temperature:.4g}"


def mean_error(readings: Sequence[Reading]) -> float:
    r"""Standard error of the mean ratio: (2/d)·ΣΣ ρ²_ij/n², ρ_ij = e^{−|clock_i − clock_j|}.

    Squares of Gaussians with correlation ρ have correlation ρ²; independent readings would give
    √(2/(dn)), identical ones √(2/d).
    """
    if not readings:
        raise StateError("there is no reading to average; call thermometer.read() first")
    total = sum(math.exp(-2 * abs(a.clock - b.clock)) for a in readings for b in readings)
    return math.sqrt(total) / len(readings) * max(reading.error for reading in readings)


def pooled(parts: list[Reading]) -> Reading:
    """One reading over all groups, each coordinate counting the same."""
    if not parts:
        raise StateError("no parameter has a guide yet; make a step first")
    size = sum(part.size for part in parts)

    def mean(name: str) -> float:
        return float(sum(getattr(part, name) * part.size for part in parts) / size)

    # Groups at different temperatures weigh differently: √(2/size) is still the standard error.
    squares = sum(part.size * part.expected**2 for part in parts)
    effective = round((size * mean("expected")) ** 2 / squares)

    names = (
        "observed",
        "expected",
        "per_variance",
        "per_independent",
        "temperature",
        "alpha",
        "lag",
    )
    rules = {part.rule for part in parts}
    return Reading(
        step=parts[0].step,
        size=effective,
        clock=min(part.clock for part in parts),
        rule=rules.pop() if len(rules) == 1 else "mixed",
        replicas=parts[0].replicas,
        **{name: mean(name) for name in names},
    )
