"""The space that is searched: hyper-parameters on logarithmic axes, around the recipe's values.

Nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from entropy_mcmc.errors import ConfigError

EDGE = 0.1  # part of a range at each end in which the best value means: look beyond
GROWTH = 0.5  # of the first range: how far it is widened each time
Point = Mapping[str, float]


@dataclass(frozen=True)
class Knob:
    """A hyper-parameter that can be searched.

    Attributes:
        below: Recipe's value / low end of the first range.
        above: High end of the first range / recipe's value.
        limits: Values that can ever work.
        from_one: Whether the axis is that of 1 − value, as for momentum.
        label: Name in tables.
    """

    below: float
    above: float
    limits: tuple[float, float] = (1e-12, 1e12)
    from_one: bool = False
    label: str = ""


KNOBS = {
    "lr": Knob(8, 4),
    "inner_lr": Knob(8, 4),
    "prior_variance": Knob(10, 10, label="prior var."),
    "temperature": Knob(10, 10, label="T"),
    "horizon": Knob(5, 5, limits=(1e-4, 2.0)),  # ηN/lr as a part of a cycle
    "momentum": Knob(4, 4, limits=(0.0, 0.998), from_one=True),
    "rho": Knob(5, 5),
}


@dataclass(frozen=True)
class Axis:
    """One searched hyper-parameter: a range of the logarithm of its value (or of 1 − value).

    Attributes:
        name: Of the knob.
        start: The recipe's value.
        low: Low end, in logarithm.
        high: High end.
        growth: How far an end moves when the range is widened; 0 for ranges of the user's.
    """

    name: str
    start: float
    low: float
    high: float
    growth: float

    def place(self, value: float) -> float:
        """Coordinate of a value."""
        return math.log(1 - value if KNOBS[self.name].from_one else value)

    def value(self, place: float) -> float:
        """Value at a coordinate, of four digits: what the table shows is what was run."""
        number = float(f"{math.exp(place):.4g}")
        return round(1 - number, 12) if KNOBS[self.name].from_one else number

    @property
    def limits(self) -> tuple[float, float]:
        """Coordinates that can ever work."""
        return ends(self.name, *KNOBS[self.name].limits)

    def on_edge(self, value: float) -> int:
        """-1 or 1 if the value is at the low or high end of a range that may grow, else 0."""
        place, margin = self.place(value), EDGE * (self.high - self.low)
        if self.growth and place <= self.low + margin and self.low > self.limits[0]:
            return -1
        if self.growth and place >= self.high - margin and self.high < self.limits[1]:
            return 1
        return 0

    def widened(self, side: int) -> Axis:
        """The axis with one end moved outwards."""
        if side < 0:
            return replace(self, low=max(self.limits[0], self.low - self.growth))
        return replace(self, high=min(self.limits[1], self.high + self.growth))


def ends(name: str, low: float, high: float) -> tuple[float, float]:
    """Coordinates of a range, in order."""
    if KNOBS[name].from_one:
        low, high = 1 - high, 1 - low
    return math.log(low), math.log(high)


def axis(name: str, start: float, given: Sequence[float] | None = None) -> Axis:
    """The axis around the recipe's value, or over the range that the user gave.

    >>> lr = axis("lr", 0.1)
    >>> lr.value(lr.low), lr.value(lr.high)
    (0.0125, 0.4)
    """
    knob = KNOBS[name]
    if not knob.limits[0] <= start <= knob.limits[1]:
        raise ConfigError(
            f"{name} cannot be searched from {start!r}, which is not within "
            f"{knob.limits[0]:g} … {knob.limits[1]:g}; give it a value, or leave it out of search"
        )
    if given is not None:
        low, high = ends(name, *given)
        return Axis(name, start, low, high, growth=0.0)
    centre = math.log(1 - start if knob.from_one else start)
    least, most = ends(name, *knob.limits)
    low, high = centre - math.log(knob.below), centre + math.log(knob.above)
    growth = GROWTH * (high - low)
    return Axis(name, start, max(least, low), min(most, high), growth)


def widened(space: Sequence[Axis], best: Point) -> tuple[list[Axis], dict[str, float] | None]:
    """The space after a look at the best point so far, and a point in what was added.

    The point is the best one, moved into the middle of the new part of each axis at whose end it
    was; None if it was at no end.
    """
    wider, probe = [], dict(best)
    for old in space:
        side = old.on_edge(best[old.name])
        new = old.widened(side) if side else old
        wider.append(new)
        if side:
            middle = (old.low + new.low) / 2 if side < 0 else (old.high + new.high) / 2
            probe[old.name] = new.value(middle)
    return wider, probe if wider != list(space) else None
