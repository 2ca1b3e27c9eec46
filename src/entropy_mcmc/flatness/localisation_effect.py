r"""How a local learning coefficient depends on the localisation γ, which is a convention.

At curvatures :math:`a_i = n\beta h_i` the estimate is, as long as the loss is quadratic,

.. math:: \lambda(\gamma) = \tfrac12\sum_i \frac{a_i}{a_i+\gamma}, \qquad
          -\frac{d\log\lambda}{d\log\gamma}
          = \frac{\sum_i a_i\gamma/(a_i+\gamma)^2}{\sum_i a_i/(a_i+\gamma)}.

This sensitivity is 0 where every direction is stiff against γ or flat: then λ counts the stiff
ones, whatever γ. It is 1 where all are soft against γ: then λ is nβ·tr H/(2γ), the trace of the
Hessian in other words.

The sums are taken over the nodes of a Lanczos quadrature from one random vector v, which stands for
all d directions: :math:`\sum_i f(a_i) \approx d\,v^Tf(A)v/\|v\|^2`, whose variance is
:math:`2\sum_i (f(a_i)-\bar f)^2` for a large d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
AROUND = (0.25, 1.0, 4.0)  # of γ
DECIDES = 0.5  # sensitivity above which γ, not the loss, says most of the value
ROUGH = 0.5  # error over the value at γ, above which the sensitivity is too rough for a verdict


@dataclass(frozen=True)
class LocalisationEffect:
    """The quadratic estimate at a quarter of γ, at γ and at four times γ.

    Attributes:
        localisations: γ/4, γ and 4γ.
        values: ½ Σ a/(a+γ) at each of them.
        errors: Their standard errors, from the one random vector.
        sensitivity: −d log λ / d log γ: 0 for a count of directions, 1 for a trace over γ.
    """

    localisations: tuple[float, ...]
    values: tuple[float, ...]
    errors: tuple[float, ...]
    sensitivity: float

    @property
    def rough(self) -> bool:
        """Whether one random vector has seen too few of the directions that count for a verdict."""
        at = AROUND.index(1.0)
        return self.errors[at] > ROUGH * self.values[at]

    @property
    def decides(self) -> bool:
        """Whether the value says more about γ than about the number of directions; not if rough."""
        return self.sensitivity > DECIDES and not self.rough

    def __str__(self) -> str:
        shown = ", ".join(
            f"{value:.3g} ± {error:.2g} at γ = {gamma:.4g}"
            for gamma, value, error in zip(
                self.localisations, self.values, self.errors, strict=True
            )
        )
        reading = "mostly a count of directions"
        if self.decides:
            reading = "γ decides: compare only at one γ, not a count of directions"
        if self.rough:
            reading = "too rough for a verdict"
        return (
            f"γ is a convention; by the curvatures alone: {shown}; sensitivity to γ "
            f"{self.sensitivity:.2f} of 1 ({reading})"
        )


def localisation_effect(
    curvatures: Any, weights: Any, localisation: float
) -> LocalisationEffect | None:
    """From nodes a of the curvature nβh and how many directions each stands for.

    None where the loss curves nowhere upwards, so that there is nothing to count. Curvatures below
    −γ/8 count as −γ/8, so that γ/4 still holds them.

    >>> effect = localisation_effect([0.0, 100.0], [90, 10], localisation=100.0)
    >>> effect.values
    (4.0, 2.5, 1.0)
    >>> effect.sensitivity
    0.5
    """
    a = np.maximum(np.asarray(curvatures, dtype=np.float64), -localisation / 8)
    w = np.asarray(weights, dtype=np.float64)
    gammas = tuple(part * localisation for part in AROUND)
    sums = [_sum_and_error(a / (a + gamma), w) for gamma in gammas]
    total = sums[AROUND.index(1.0)][0]
    if total <= 0:
        return None
    lost = float((w * a * localisation / (a + localisation) ** 2).sum())
    return LocalisationEffect(
        gammas,
        tuple(value / 2 for value, _ in sums),
        tuple(error / 2 for _, error in sums),
        lost / total,
    )


def _sum_and_error(f: Floats, w: Floats) -> tuple[float, float]:
    """Σ w·f, and its standard error as an estimate from one random vector."""
    total = float((w * f).sum())
    apart = f - total / w.sum()
    return total, float(np.sqrt(2 * (w * apart**2).sum()))
