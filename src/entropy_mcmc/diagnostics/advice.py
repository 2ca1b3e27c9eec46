"""From numbers to sentences: what to change about lr, η and T."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from entropy_mcmc.diagnostics.cycles import Contrast
from entropy_mcmc.diagnostics.function_space import Mixing
from entropy_mcmc.diagnostics.heat import Verdict
from entropy_mcmc.diagnostics.thermometer import RELAXED, Thermometer

SEVERITIES = ("ok", "note", "warning", "problem")
HEAT = 0.1  # share of T above which mini-batch heat is worth a word
RHAT = 1.05
ALARM = 0.05  # p below which cycles are said to differ: a note, wrong once in 20 mixed chains
OSCILLATES = 0.5  # lr/(ηN) above which θ and θ_a of the Euler rule overshoot each other
CLIPPED = 0.01  # share of noisy steps above which clipping is no longer against accidents only
COPIES = 0.1  # distance within over between cycles below which samples are near copies


@dataclass(frozen=True)
class Advice:
    """One sentence, and how much it matters: "ok", "note", "warning" or "problem"."""

    severity: str
    text: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.text}"


def on_coupling(thermometer: Thermometer) -> list[Advice]:
    """About η: is the guide tied too tightly, or not given time?"""
    found = []
    peak = thermometer.peak_coupling
    rules = {group["guide_update"] for group in thermometer.sampler.param_groups}
    if peak > OSCILLATES and "euler" in rules:
        text = (
            f"lr/(ηN) reached {peak:.2g}: above {OSCILLATES} θ and θ_a oscillate; raise η above "
            f'2·lr/N, lower lr, or use guide_update="exact"'
        )
        found.append(Advice("warning", text))
    if not thermometer.readings:
        found.append(_no_reading(thermometer))
    return found


def _no_reading(thermometer: Thermometer) -> Advice:
    reached = thermometer.relaxation
    if not any(group["temperature"] for group in thermometer.sampler.param_groups):
        return Advice("note", "T = 0: an optimizer, there is no temperature to read")
    if reached >= RELAXED:
        return Advice("note", "the thermometer was never read; call thermometer.read() when ready")
    if not reached:
        return Advice("problem", "the noise was never on: these are not samples; lower burn_in")
    factor = 1.1 * RELAXED / reached  # a tenth more, so that the rounded number is enough
    tight = thermometer.peak_coupling * factor > OSCILLATES
    smaller = f"divide η by {factor:.2g}"
    if tight and any(g["guide_update"] == "euler" for g in thermometer.sampler.param_groups):
        smaller += ' with guide_update="exact" (the Euler rule would oscillate)'
    text = (
        f"no temperature reading: the noisy part lasted Σ 2·lr/(ηN) = {reached:.2g}, and θ_a needs "
        f"{RELAXED:g} to reach its law; {smaller}, or make the noisy part longer (a smaller "
        f"burn_in, more steps) or its lr larger"
    )
    # Nothing is known to be wrong: short cycles with a cosine never last long enough.
    return Advice("note", text)


def on_temperature(verdict: Verdict, temperature: float) -> list[Advice]:
    """About T and lr, from the thermometer's verdict."""
    found = []
    if verdict.kind == "hot":
        remedy = (
            "the guide may still follow a drift (begin the noise later), mini-batches may heat "
            "(larger batches or a smaller lr), or noise is added twice"
        )
        found.append(Advice("warning", f"{verdict.text}; {remedy}"))
    elif verdict.kind == "cold":
        remedy = "is θ_a decayed (guide_weight_decay), or kept in low precision?"
        found.append(Advice("problem", f"{verdict.text}; {remedy}"))
    elif verdict.kind == "mini-batch heat" and verdict.minibatch is not None:
        found.append(_on_minibatches(verdict, temperature))
    else:
        found.append(
            Advice(
                "ok",
                f"the thermometer is {verdict.text}" if verdict.kind == "right" else verdict.text,
            )
        )
    if 0 < temperature < 1:
        text = f"T = {temperature:.4g}: the target is exp(−U/T), colder than the Bayes posterior"
        found.append(Advice("note", text))
    return found


def _on_minibatches(verdict: Verdict, temperature: float) -> Advice:
    assert verdict.minibatch is not None
    share = verdict.minibatch.value / temperature
    if share <= HEAT:
        return Advice("ok", verdict.text)
    text = (
        f"{verdict.text}; for less than {HEAT:.0%} of T divide lr by {share / HEAT:.2g} in the "
        f"noisy part, or enlarge the batch by as much"
    )
    return Advice("warning", text)


def on_clipping(share: float | None) -> list[Advice]:
    """About gradients that were clipped while sampling."""
    if share is None or share <= CLIPPED:
        return []
    text = (
        f"the gradient was clipped in {share:.0%} of the noisy steps: the drift is then weaker "
        f"than that of the target, and the samples spread wider than exp(−U/T); raise the limit "
        f"(sampler.clip_norm, .inf for none), with a smaller lr if the chain then diverges"
    )
    return [Advice("warning", text)]


def on_mixing(role: str, mixing: Mixing, same: float | None) -> list[Advice]:
    """About the number of samples and the agreement of cycles; `same` is the p of `same_law`."""
    found = []
    if same is not None and same < ALARM:
        text = (
            f"{role}: draws of one cycle are more alike than draws of different cycles "
            f"(p = {same:.3f}): the average is an ensemble of cycles, not draws of one mixed chain"
        )
        found.append(Advice("note", text))
    elif same is not None:
        text = f"{role}: no sign that cycles differ more than draws within them (p = {same:.2f})"
        found.append(Advice("ok", text))
    elif mixing.rhat and mixing.rhat[1] > RHAT:
        text = (
            f"{role}: R-hat {mixing.rhat[1]:.2f} > {RHAT} in the median: the two halves of the "
            f"chain predict differently; drop more of its beginning"
        )
        found.append(Advice("warning", text))
    if mixing.ess and mixing.ess[1] < mixing.draws / 4:
        text = (
            f"{role}: {mixing.draws} draws are worth {mixing.ess[1]:.1f} independent ones for the "
            f"median prediction; space them further apart, or run more cycles"
        )
        found.append(Advice("note", text))
    return found


def on_cycles(role: str, weights: Contrast) -> list[Advice]:
    """About samples of one cycle that are near copies."""
    if weights.within is None or not weights.between:
        return []
    share = weights.within / weights.between
    if share >= COPIES:
        return []
    text = (
        f"{role}: samples of a cycle are {share:.1%} as far apart as those of different cycles: "
        f"near copies; a longer noisy part, a larger lr in it or a higher T spreads them"
    )
    return [Advice("note", text)]


def worst(advice: Any) -> str:
    """The gravest severity in a list."""
    return max((a.severity for a in advice), key=SEVERITIES.index, default="ok")
