"""Verdicts in words: how much a finding matters, and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_mcmc.diagnostics.distances import Contrast
from entropy_mcmc.diagnostics.ess_rhat import Mixing
from entropy_mcmc.diagnostics.expected_reading import integrator_of, replicas_of
from entropy_mcmc.diagnostics.pair_temperature import COPIES, PairTemperature
from entropy_mcmc.diagnostics.temperature_verdict import Verdict
from entropy_mcmc.diagnostics.thermometer import Thermometer
from entropy_mcmc.units import RELAXED

if TYPE_CHECKING:
    from entropy_mcmc.diagnostics.diagnosis import RoleDiagnosis

SEVERITIES = ("ok", "note", "warning", "problem")
HEAT = 0.1  # share of T above which mini-batch heat is worth a word
OSCILLATES = 0.5  # lr/(ηN) above which θ and θ_a of the Euler rule overshoot each other
CLIPPED = 0.01  # share of noisy steps above which clipping is no longer against accidents only
MOVED = 0.01  # predicted probability that moves between near copies
STILL = 1e-4  # movement over the size of the weights below which a chain stands still
FEW = 1 / 8  # ESS over draws below which draws are worth few; independent ones: < 1 in 100
SYMBOLS = {"theta": "θ", "guide": "θ_a"}


@dataclass(frozen=True)
class Advice:
    """One finding, how much it matters ("ok", "note", "warning", "problem"), and what to change."""

    severity: str
    text: str
    change: str = ""

    @property
    def sentence(self) -> str:
        """Finding and remedy."""
        return f"{self.text}. To change: {self.change}" if self.change else self.text

    def __str__(self) -> str:
        return f"{self.severity}: {self.sentence}"


def on_coupling(thermometer: Thermometer) -> list[Advice]:
    """About η: is the guide tied too tightly, or not given time?"""
    advice = []
    peak, y = thermometer.peak_coupling, _replicas(thermometer)
    if peak > OSCILLATES and _has_euler(thermometer):
        name = "lr/(ηN)" if y == 1 else f"{1 + y}/2·lr/(ηN)"
        text = f"{name} reached {peak:.2g}: above {OSCILLATES} θ and θ_a oscillate"
        change = f"raise η above {1 + y}·lr/N, lower lr, or use {_calm_rule(y)}"
        advice.append(Advice("warning", text, change))
    if not thermometer.readings:
        advice.append(_no_reading(thermometer))
    return advice


def _has_euler(thermometer: Thermometer) -> bool:
    """Whether a group moves both variables by Euler steps, which a tight coupling makes hotter."""
    groups = thermometer.sampler.param_groups
    return any(g["guide_update"] == "euler" == integrator_of(g) for g in groups)


def _replicas(thermometer: Thermometer) -> int:
    return replicas_of(thermometer.sampler.param_groups[0])


def _calm_rule(replicas: int) -> str:
    """The rule that bears a tight coupling: the exact one has no form for replicas."""
    return 'guide_update="exact"' if replicas == 1 else 'integrator="baoab"'


def _no_reading(thermometer: Thermometer) -> Advice:
    reached, y = thermometer.relaxation, _replicas(thermometer)
    if not any(group["temperature"] for group in thermometer.sampler.param_groups):
        return Advice("note", "T = 0: an optimizer, not a sampler", "for samples set T above 0")
    if reached >= RELAXED and thermometer.ready:
        return Advice(
            "note", "the thermometer was never read", "call thermometer.read() when it is ready"
        )
    if reached >= RELAXED:  # in time, but θ − θ_a swings, and its swings die out later
        text = "no temperature reading: θ − θ_a swings, and had not forgotten its start in time"
        return Advice("note", text, "make the noisy part longer, raise η, or lower momentum")
    if not reached:
        return Advice("problem", "the noise was never on: these are not samples", "lower burn_in")
    factor = 1.1 * RELAXED / reached  # a tenth more, so that the rounded number is enough
    tight = thermometer.peak_coupling * factor > OSCILLATES
    smaller = f"divide η by {factor:.2g}"
    if tight and _has_euler(thermometer):
        smaller += f" with {_calm_rule(y)} (the Euler rule would oscillate)"
    text = (
        f"no temperature reading: the noisy part lasted Σ {1 + y}·lr/((1−μ)ηN) = {reached:.2g}, "
        f"and θ_a needs {RELAXED:g} to forget its start"
    )
    change = (
        f"{smaller}, or make the noisy part longer (a smaller burn_in, more steps) or its lr larger"
    )
    # Nothing is known to be wrong: short cycles with a cosine never last long enough.
    return Advice("note", text, change)


def on_temperature(verdict: Verdict, temperature: float) -> list[Advice]:
    """About the injected noise and mini-batches, from the thermometer's verdict."""
    if verdict.kind == "hot":
        change = (
            "begin the noise later (the guide may still follow a drift), use larger batches or a "
            "smaller lr, and look whether noise is added twice"
        )
        return [Advice("warning", verdict.text, change)]
    if verdict.kind == "cold":
        change = "switch guide_weight_decay off, and keep θ_a in float32"
        return [Advice("problem", verdict.text, change)]
    share = verdict.theta_heat[1].value / temperature if verdict.theta_heat else 0.0
    if share > HEAT and verdict.kind in ("mini-batch heat", "draw only"):
        change = (
            f"for less than {HEAT:.0%} of T divide lr by {share / HEAT:.2g} in the noisy part, or "
            f"enlarge the batch by as much"
        )
        return [Advice("warning", verdict.text, change)]
    return [Advice("ok", verdict.text)]


def on_cold_target(temperature: float | None) -> list[Advice]:
    """About a tempered posterior."""
    if temperature is None or not 0 < temperature < 1:
        return []
    text = f"T = {temperature:.4g}: the target is exp(−U/T), colder than the Bayes posterior"
    return [Advice("note", text, "nothing if that is meant; T = 1 for the Bayes posterior")]


def on_theta(pair: PairTemperature | None, temperature: float | None) -> list[Advice]:
    """About the temperature of θ itself."""
    if pair is None or not temperature:
        return []
    share = pair.reading.value / temperature
    shown = f"{pair.reading} against T = {temperature:.4g} ({pair.cost})"
    kind = pair.verdict(temperature)
    if kind == "hot":
        text = f"θ is {share:.3g} times as hot as T: {shown}; its samples spread too wide"
        change = (
            f"divide lr by {pair.lr_divisor(temperature):.2g} in the noisy part, or more, until "
            f"this reads below 1.05·T; larger batches, if mini-batches are the cause"
        )
        return [Advice("warning", text, change)]
    if kind == "right":
        return [Advice("ok", f"θ's own temperature agrees with T: {shown}")]
    if kind == "vague":
        text = f"θ's own temperature is too uncertain to compare with T: {shown}"
        return [Advice("note", text, "keep more samples, if the temperature of θ matters")]
    pairs = "samples of a cycle" if pair.within else "samples"
    part = f"{100 * share:.2g}%" if share > 0 else "none"  # an estimate may fall below 0
    text = f"{pairs} have {part} of the spread that exp(−U/T) has: {shown}"
    text += "; near copies" if kind == "near copies" else "; they are close in time"
    change = "make the noisy part longer, space the samples further apart, or raise lr in it"
    return [Advice("warning" if kind == "near copies" else "note", text, change)]


def on_clipping(share: float | None) -> list[Advice]:
    """About gradients that were clipped while sampling."""
    if share is None or share <= CLIPPED:
        return []
    text = (
        f"the gradient was clipped in {share:.0%} of the noisy steps: the drift is then weaker "
        f"than that of the target, and the samples spread wider than exp(−U/T)"
    )
    change = (
        "raise the limit (sampler.clip_norm, .inf for none), with a smaller lr if the chain then "
        "diverges"
    )
    return [Advice("warning", text, change)]


def on_agreement(roles: Sequence[RoleDiagnosis]) -> list[Advice]:
    """About chains, cycles or halves that predict differently; θ and guide in one sentence."""
    advice = []
    for groups, change in _AGREEMENT.items():
        own = [(r.role, a) for r in roles for a in r.agreements if a.groups == groups]
        by_kind = {kind: [(r, a) for r, a in own if a.verdict == kind] for kind in _SAID}
        if by_kind["differ"]:
            text = f"{_told(by_kind['differ'])}: {groups} predict differently{_MEANING[groups]}"
            advice.append(Advice("warning", text, change))
            break  # chains that differ have cycles that differ
        for kind, (severity, said) in _SAID.items():
            if by_kind[kind]:
                text = f"{_told(by_kind[kind])}: {said.format(groups=groups)}"
                advice.append(Advice(severity, text, change if severity == "note" else ""))
    return advice


_SAID = {
    "differ": ("warning", ""),
    "slightly": ("note", "{groups} differ a little more than draws within them"),
    "too few": ("note", "too few draws to tell whether {groups} differ"),
    "alike": ("ok", "no sign that {groups} differ"),
}
_MEANING = {
    "chains": "; their average is an ensemble, not draws of one mixed chain",
    "replicas": "; their average is an ensemble, not draws of one mixed chain",
    "cycles": "; their average is an ensemble, not draws of one mixed chain",
    "halves": " at the beginning and at the end",
}
_AGREEMENT = {
    "chains": "run longer chains with more samples, or take the average as an ensemble",
    "replicas": "run longer with more samples, tie the replicas tighter by a smaller η, or take "
    "the average as an ensemble",
    "cycles": "make cycles longer with more samples, or take the average as an ensemble",
    "halves": "drop more of the beginning, or run longer with more samples",
}


def _told(entries: Iterable[tuple[str, object]]) -> str:
    return "; ".join(f"{SYMBOLS.get(role, role)}: {value}" for role, value in entries)


def on_ess(roles: Sequence[RoleDiagnosis]) -> list[Advice]:
    """About draws that are worth few independent ones."""
    few = [(r.role, r.mixing) for r in roles if r.mixing.ess and _share(r.mixing) < FEW]
    if not few:
        return []
    told = _told(
        (role, f"{m.draws} draws are worth {m.ess[1]:.1f} independent ones")
        for role, m in few
        if m.ess
    )
    change = "space the samples further apart, or run more cycles"
    return [Advice("note", f"{told} for the median prediction", change)]


def _share(mixing: Mixing) -> float:
    return mixing.ess[1] / mixing.draws if mixing.ess else 1.0


def on_copies(
    roles: Sequence[RoleDiagnosis], pair: PairTemperature | None, temperature: float | None
) -> list[Advice]:
    """About samples of one cycle that are near copies: in predictions, and against other cycles.

    Where θ's own temperature was read, it says how far samples should be apart, and the absolute
    limit on predictions is not needed: a narrow posterior has samples that predict alike.
    """
    advice = []
    alike = [(r.role, f"{r.moved:.2%}") for r in roles if r.moved is not None and r.moved < MOVED]
    if alike and pair is None:
        text = (
            f"{_told(alike)} of the predicted probability moves between two samples of a cycle: "
            f"near copies, whose average is as good as one of them"
        )
        advice.append(Advice("warning", text, _SPREAD))
    if pair is not None and temperature and pair.verdict(temperature) == "near copies":
        return advice  # said with its size
    near = [(r.role, _relative(r.weights)) for r in roles]
    close = [(role, f"{share:.1%}") for role, share in near if share is not None and share < COPIES]
    if close:
        text = (
            f"{_told(close)}: samples of a cycle are that far apart, measured by the distance of "
            f"different cycles: near copies"
        )
        advice.append(Advice("note", text, _SPREAD))
    return advice


_SPREAD = "a longer noisy part, a larger lr in it, or a higher T"


def _relative(weights: Contrast) -> float | None:
    if weights.within is None or not weights.between:
        return None
    return weights.within / weights.between


def on_standing(movement: Mapping[str, float]) -> list[Advice]:
    """About chains whose samples are all the same weights."""
    still = [name for name, share in movement.items() if share < STILL]
    if not still:
        return []
    largest = max(movement[name] for name in still)
    text = (
        f"{', '.join(still)} never left its start: all its samples are the same weights to "
        f"{largest:.1g} of their size"
    )
    change = "raise lr (is it 0, or has a schedule ended?) or T, and look at frozen parameters"
    return [Advice("problem", text, change)]


def on_constant_predictions(roles: Sequence[RoleDiagnosis]) -> list[Advice]:
    """About networks that predict the same whatever they see."""
    share = max(entry.constant for entry in roles)
    if not share:
        return []
    text = (
        f"{share:.0%} of the samples predict the same for every input: they have learned nothing "
        "from the inputs, or there is nothing to learn"
    )
    change = (
        "if others learn: first steps that overshoot do this; use warm_up=0.05 or a smaller lr; "
        "then a wider prior"
    )
    return [Advice("warning", text, change)]


def on_notes(roles: Sequence[RoleDiagnosis]) -> list[Advice]:
    """What could not be computed: one note for each remedy, said once for θ and guide."""
    notes: dict[str, list[str]] = {}
    for entry in roles:
        for note in entry.mixing.notes:
            notes.setdefault(note, []).append(SYMBOLS.get(entry.role, entry.role))
    merged: dict[tuple[str, str], list[str]] = {}
    for note, who in notes.items():
        merged.setdefault((" and ".join(who), _remedy(note)), []).append(note)
    return [
        Advice("note", f"{who}: {'; '.join(said)}", remedy)
        for (who, remedy), said in merged.items()
    ]


def _remedy(note: str) -> str:
    if "arviz" in note:
        return "install it"
    if "predict the same" in note or "stand still" in note or "no prediction varies" in note:
        return "a larger lr or a longer noisy part"
    return "collect more samples per cycle, or more cycles"


def worst(advice: Iterable[Any]) -> str:
    """The gravest severity in a list."""
    return max((a.severity for a in advice), key=SEVERITIES.index, default="ok")
