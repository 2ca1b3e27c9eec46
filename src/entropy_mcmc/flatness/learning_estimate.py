"""From the chains of a local learning coefficient to its value, its error and its warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from entropy_mcmc.diagnostics import mixing
from entropy_mcmc.flatness.localisation_effect import LocalisationEffect
from entropy_mcmc.flatness.localised import Plan, Trace

RHAT = 1.05
REACHED = 1.5  # burn-in in relaxation times of the localisation: 95 % of the variance is there
HOT = 0.1  # relative error of the measured temperature
FAR = 0.1  # relative excess of the mean squared distance over that of the localisation alone
ERRORS = 4  # standard errors by which a measured number must also miss


@dataclass(frozen=True)
class LearningCoefficient:
    """An estimate of the local learning coefficient, with what is needed to judge it.

    Attributes:
        value: λ̂ = nβ(E[L] − L*); NaN if a chain diverged.
        standard_error: Of the value, from the effective sample size over all chains.
        rhat: Split R-hat of the loss over the chains, if there are draws enough.
        ess: Effective sample size of the loss.
        chain_values: λ̂ of each chain.
        loss: L*, the mean loss at the network's weights.
        num_data: n.
        temperature: T = 1/β of the target.
        measured_temperature: Configurational temperature of the chains, a mean over all weights.
        localisation: γ.
        lr: Learning rate on the mean loss.
        step_size: α = lr·T/n.
        parameters: d, the number of trainable parameters.
        draws: Draws of each chain.
        warnings: Why the estimate is not to be trusted; empty if nothing was seen.
        effect: How the estimate depends on γ, by the curvatures at the weights; None if lr was
            given, so that the Hessian was not measured.
        counted_temperature: Temperature along the directions that the value counts, each by its
            share: above T where the step or the mini-batches heat them, and the value is too large
            by about as much.
    """

    value: float
    standard_error: float
    rhat: float | None
    ess: float | None
    chain_values: tuple[float, ...]
    loss: float
    num_data: int
    temperature: float
    measured_temperature: float
    localisation: float
    lr: float
    step_size: float
    parameters: int
    draws: int
    warnings: tuple[str, ...] = ()
    effect: LocalisationEffect | None = None
    counted_temperature: float = math.nan

    @property
    def trustworthy(self) -> bool:
        """Whether nothing was seen that speaks against the estimate."""
        return not self.warnings

    def __str__(self) -> str:
        rhat = "no R-hat" if self.rhat is None else f"R-hat {self.rhat:.3f}"
        ess = "no ESS" if self.ess is None else f"ESS {self.ess:.0f}"
        lines = [
            f"local learning coefficient {self.value:.4g} \u00b1 {self.standard_error:.2g} "
            f"(a regular model of {self.parameters} parameters: {self.parameters / 2:g})",
            f"{len(self.chain_values)} chains of {self.draws} draws, {ess}, {rhat}",
            f"n = {self.num_data}, T = {self.temperature:.4g}, measured "
            f"{self.measured_temperature:.4g} ({self.counted_temperature:.4g} where the value "
            f"counts); \u03b3 = {self.localisation:.4g}, "
            f"lr {self.lr:.3g} (step {self.step_size:.3g})",
        ]
        lines += [str(self.effect)] if self.effect else []
        return "\n".join([*lines, *(f"not trustworthy: {text}" for text in self.warnings)])


def summarise(traces: Sequence[Trace], plan: Plan, loss: float, size: int) -> LearningCoefficient:
    """The estimate from the chains; `loss` is L*, `size` the number of parameters."""
    target = plan.target
    whole = not any(trace.diverged for trace in traces)
    excess = _Draws([target.inverse * np.array(trace.excess) for trace in traces], whole)
    heat = _Draws([np.array(trace.temperature) for trace in traces], whole)
    counted = _Draws([np.array(trace.counted) for trace in traces], whole)
    reach = target.localisation / size
    away = _Draws([reach * np.array(trace.distance) for trace in traces], whole)
    return LearningCoefficient(
        value=excess.mean,
        standard_error=excess.error,
        rhat=excess.rhat,
        ess=excess.ess,
        chain_values=excess.means,
        loss=loss,
        num_data=target.num_data,
        temperature=target.temperature,
        measured_temperature=heat.mean,
        localisation=target.localisation,
        lr=target.lr,
        step_size=target.step_size,
        parameters=size,
        draws=target.steps - plan.burn_in,
        warnings=tuple(_warnings(traces, plan, excess, (counted, heat), away)),
        effect=target.effect,
        counted_temperature=counted.mean,
    )


class _Draws:
    """Mean of one quantity over all chains, its standard error, ESS and R-hat."""

    def __init__(self, chains: Sequence[np.ndarray], whole: bool) -> None:
        self.mean = self.error = math.nan
        self.means = tuple(float(c.mean()) if whole else math.nan for c in chains)
        self.ess: float | None = None
        self.rhat: float | None = None
        if not whole:
            return
        summary = mixing(chains)
        draws = np.concatenate(chains)
        self.mean = float(draws.mean())
        self.ess = summary.ess[0] if summary.ess else None
        self.rhat = summary.rhat[0] if summary.rhat else None
        if self.ess:
            self.error = float(draws.std(ddof=1)) / math.sqrt(self.ess)

    def exceeds(self, limit: float) -> bool:
        """Whether the mean is above a limit, and not by chance."""
        return self.mean > limit + ERRORS * self.error


def _warnings(
    traces: Sequence[Trace],
    plan: Plan,
    excess: _Draws,
    heats: tuple[_Draws, _Draws],
    away: _Draws,
) -> list[str]:
    target, burn_in = plan.target, plan.burn_in
    late = [trace.diverged for trace in traces if trace.diverged]
    if late:
        return [
            f"{len(late)} of {len(traces)} chains diverged, the first at step {min(late)}: "
            f"lower lr={target.lr:.3g}"
        ]
    step, pull = target.step_size, target.localisation
    needed = math.ceil(REACHED / (step * pull))
    checks = [
        (
            excess.mean < 0,
            f"the value {excess.mean:.3g} is negative: the loss falls away from the weights, which "
            "are not a minimum; train longer, or raise the localisation",
        ),
        (
            excess.rhat is None or excess.ess is None,
            f"{len(traces)} chains of {target.steps - burn_in} draws are too few for an error",
        ),
        (
            excess.rhat is not None and excess.rhat > RHAT,
            f"the chains have not mixed (R-hat {excess.rhat or 0:.3f} > {RHAT}): run more steps",
        ),
        (
            away.exceeds((1 + FAR) / (1 - min(step * pull / 2, 0.9))),
            f"the chains left: their mean squared distance is {away.mean:.3g} times that of the "
            "localisation alone, so that the loss falls outwards; raise the localisation",
        ),
        (bool(heat := _heat(heats, plan)), heat),
        (
            burn_in < needed,
            f"the burn-in of {burn_in} steps is shorter than the {needed} that flat directions "
            "need to reach their width: run more steps, or raise the localisation",
        ),
    ]
    return [text for fails, text in checks if fails]


def _heat(heats: tuple[_Draws, _Draws], plan: Plan) -> str:
    """That the chains are too hot, and where; "" if they are not."""
    target = plan.target
    limit = (1 + HOT) * target.temperature
    places = " along the directions that the value counts", ""
    for measured, place in zip(heats, places, strict=True):
        if measured.exceeds(limit):
            # The heat of a step and of mini-batches is in proportion to lr.
            lr = target.lr * HOT / (measured.mean / target.temperature - 1)
            rows = max(plan.parts.sizes)
            larger = f"use a batch_size above {rows}, or " if rows < plan.parts.rows else ""
            return (
                f"the chains are too hot{place}: {measured.mean:.3g} measured for "
                f"T={target.temperature:.3g}, at most {limit:.3g}; {larger}"
                f"lower lr={target.lr:.3g} to about {lr:.2g}"
            )
    return ""
