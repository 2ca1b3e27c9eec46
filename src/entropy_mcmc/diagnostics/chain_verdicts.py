"""Verdicts on chains of a small model, from the worst of its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from entropy_mcmc.diagnostics import verdicts
from entropy_mcmc.diagnostics.agreement import RATE, rhat_limit
from entropy_mcmc.diagnostics.ess_rhat import LEAST, LEAST_ESS
from entropy_mcmc.diagnostics.pair_temperature import PairTemperature
from entropy_mcmc.diagnostics.verdicts import FEW, Advice

if TYPE_CHECKING:
    from entropy_mcmc.diagnostics.diagnosis import RoleDiagnosis

FEWEST = 100  # effective draws: a mean is then known to a tenth of a standard deviation
APART = 1.05  # R-hat below which chains count as mixed, however certain the difference
MOST = 2000  # parameters that are looked at, evenly spaced
REPARAMETRISE = (
    "write the model in other parameters (a hierarchy as mean + sd·z with z standard normal, "
    "inputs standardised), then a longer warm-up and a larger thin; where chains stay in different "
    "modes, none of this helps"
)


@dataclass(frozen=True)
class Worst:
    """The worst R-hat and the worst ESS of all parameters, with whose they are.

    Attributes:
        rhat: Rank-normalised split R-hat, the larger of bulk and tails.
        limit: R-hat above which chains are said to differ in this parameter.
        ess: Effective sample size, the smaller of bulk and tails.
        draws: Draws of all chains.
    """

    rhat: tuple[float, str]
    limit: float
    ess: tuple[float, str]
    draws: int

    @property
    def differ(self) -> bool:
        """Whether R-hat is higher than chance makes it."""
        return self.rhat[0] > self.limit

    @property
    def few(self) -> bool:
        """Whether the draws are worth too few to be used."""
        return self.ess[0] < FEWEST

    @property
    def worth(self) -> str:
        """What the draws of the worst parameter are worth."""
        value, name = self.ess
        return (
            f"{self.draws} draws are worth {value:.3g} independent ones for {name}, whose mean is "
            f"known to {1 / math.sqrt(value):.2g} standard deviations"
        )


def worst(draws: Tensor, names: Sequence[str] = ()) -> Worst | None:
    """The worst parameter of draws (chain, draw, element); None where there are too few draws.

    The limit of R-hat is that of independent Gaussian draws in the two halves of each chain, as
    many as the ESS of each chain by itself says, at a rate of false alarms of 0.01 over bulk and
    tails of all parameters.
    """
    values = draws.double().cpu().numpy()
    if len(values) == 1 and values.shape[1] > 1:  # R-hat of its halves
        half = values.shape[1] // 2
        values = values[0, -2 * half :].reshape(2, half, -1)
    size, total = values.shape[2], values.shape[0] * values.shape[1]
    if values.shape[1] < 2 * LEAST or total < LEAST_ESS:
        return None
    places = np.linspace(0, size - 1, min(MOST, size)).astype(int)
    places = places[np.ptp(values[:, :, places], axis=(0, 1)) > 0]
    if not len(places):
        return None
    rhat, ess, own = _statistics(values[:, :, places])
    limits = _limits(own, 2 * len(values), RATE / (2 * size))
    first = int(np.where((rhat > limits).any(), rhat - limits, rhat).argmax())
    last = int(ess.argmin())
    labels = [names[i] if names else f"element {i}" for i in places]
    return Worst(
        (float(rhat[first]), labels[first]),
        float(limits[first]),
        (float(ess[last]), labels[last]),
        total,
    )


def _statistics(values: Any) -> tuple[Any, Any, Any]:
    """R-hat and ESS of each parameter, the worse of bulk and tails; the sum of the chains' ESS.

    Tails are the quantiles 0.05 and 0.95. What stands still within each chain has an ESS of 1.
    """
    stats: Any = import_module("arviz_stats.base").array_stats
    axes, most = {"chain_axis": 0, "draw_axis": 1}, values[:, :, 0].size
    with np.errstate(all="ignore"):
        rhat = stats.rhat(values, method="rank", **axes)
        kinds = [stats.ess(values, method="bulk", **axes)]
        kinds += [stats.ess(values, method="quantile", prob=q, **axes) for q in (0.05, 0.95)]
        alone = [stats.ess(chain[None], method="bulk", **axes) for chain in values]
    ess, own = (np.nan_to_num(x, nan=1.0) for x in (np.min(kinds, axis=0), np.sum(alone, axis=0)))
    return np.nan_to_num(rhat, nan=math.inf), np.minimum(ess, most), np.minimum(own, most)


def _limits(ess: Any, groups: int, rate: float) -> Any:
    """R-hat that so many effective draws in so many groups exceed at this rate, at least APART."""
    counts = np.maximum(ess, 2 * groups).astype(int)
    limits = {n: max(APART, rhat_limit(groups, int(n), rate)) for n in set(counts.tolist())}
    return np.array([limits[n] for n in counts.tolist()])


def on_worst(found: Worst | None) -> list[Advice]:
    """About the parameter that mixes worst: a warning where its draws cannot be used."""
    if found is None:
        return []
    value, name = found.rhat
    if found.differ:
        text = f"the chains differ in {name}: R-hat {value:.3g}, above {found.limit:.3g}"
        return [Advice("warning", f"{text}; {found.worth}", REPARAMETRISE)]
    if not found.few:
        text = f"R-hat is at most {value:.3g} ({name}), ESS at least {found.ess[0]:.0f}"
        return [Advice("ok", f"{text} ({found.ess[1]})")]
    if found.ess[0] >= FEW * found.draws:
        return [Advice("warning", f"few draws: {found.worth}", "draw more of them")]
    text = f"the chains hardly move: {found.worth}; R-hat is up to {value:.3g} ({name})"
    return [Advice("warning", text, REPARAMETRISE)]


def on_efficiency(found: Worst | None, median: float) -> list[Advice]:
    """About draws that are close in time, where no parameter is bad enough for a warning."""
    if found is None or found.differ or found.few or median >= FEW * found.draws:
        return []
    text = f"{found.draws} draws are worth {median:.0f} independent ones for the median parameter"
    return [Advice("note", text, "a larger thin gives fewer draws that are worth as much")]


def on_temperature(pair: PairTemperature | None) -> list[Advice]:
    """About the temperature of the draws, which is 1."""
    advice = verdicts.on_theta(pair, 1.0)
    if pair is None:
        return advice
    change = _TEMPERATURE.get(pair.verdict(1.0), "a larger thin")
    gradients = f"{pair.draws} gradients"
    return [
        _told(item, {pair.cost: gradients, "of a cycle": "of a chain"}, change) for item in advice
    ]


_TEMPERATURE = {
    "hot": f"a larger batch_size; with all rows a longer warm-up, or {REPARAMETRISE}",
    "vague": "more draws, if the temperature matters",
}


def on_agreement(role: RoleDiagnosis, found: Worst | None) -> list[Advice]:
    """About chains, or halves of one, that differ; after a warning of `on_worst` without remedy."""
    advice = verdicts.on_agreement((role,))
    changes = {"warning": REPARAMETRISE, "note": "more draws, and a larger thin"}
    if found is not None and (found.differ or found.few):
        advice, changes = [item for item in advice if item.severity == "warning"], {}
    words = {"predict differently": "differ", _ENSEMBLE: ""}
    return [_told(item, words, changes.get(item.severity, "")) for item in advice]


def on_notes(role: RoleDiagnosis) -> list[Advice]:
    """What could not be computed of chains of a small model, which have no cycles."""
    words = {"chains or cycles": "chains", "predictions": "parameters", "predict ": "have "}
    return [_told(item, words, "more draws") for item in verdicts.on_notes((role,))]


_ENSEMBLE = "; their average is an ensemble, not draws of one mixed chain"


def _told(advice: Advice, words: Mapping[str, str], change: str) -> Advice:
    """Advice on a run in other words, with what `chains.sample` lets one change."""
    text = advice.text
    for word, other in words.items():
        text = text.replace(word, other)
    return Advice(advice.severity, text, change if advice.change else "")
