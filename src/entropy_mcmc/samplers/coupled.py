r"""What a sampler with a guide θ_a does beside its rule: show θ_a, draw it, forget it, check η.

The rules themselves are in `entropy_mcmc.py`; nothing here moves θ. `integrator` moves θ,
`guide_update` says how θ_a follows:

=============  =====================  ===============  ===============  ==========================
integrator     "euler"                "exact"          "gibbs"          "collapsed"
=============  =====================  ===============  ===============  ==========================
"euler"        the paper; momentum    yes              yes              θ is SGLD; momentum: SGHMC
"lm"           both averaged          –                –                θ is SGLD's "lm"
"baoab"        both split; momentum   –                –                θ is SGHMC's "baoab"
=============  =====================  ===============  ===============  ==========================

`collapsed` leaves the coupling out of θ's rule and draws θ_a only when it is asked for:

.. math:: \theta_a = \theta + \sqrt{\eta T}\,\xi

with ξ a pure function of (seed, step, element), so that θ_a of a step is always the same. Nothing
is kept beside what θ's rule keeps. If θ has the variance v, θ_a has v + ηT, their covariance is v.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers.base import Closure, Group
from entropy_mcmc.samplers.kernel.swap import showing
from entropy_mcmc.samplers.replicas import Replicated
from entropy_mcmc.samplers.rule import Pair, Update
from entropy_mcmc.units import (
    heat_of,
    least_eta,
    posterior_in_words,
    rounds_between,
    safe_eta,
    tightness,
)

OSCILLATES = 0.5
GUIDE_STREAM = 2  # of the noise that draws θ_a given θ
# Whether the rule of (integrator, guide_update) takes momentum; what is missing does not exist.
TAKES_MOMENTUM = {
    ("euler", "euler"): True,
    ("euler", "exact"): False,
    ("euler", "gibbs"): False,
    ("euler", "collapsed"): True,
    ("lm", "euler"): False,
    ("lm", "collapsed"): False,
    ("baoab", "euler"): True,
    ("baoab", "collapsed"): True,
}


class Guided(Replicated):
    """A sampler of θ and a guide θ_a, which its rule moves or which is drawn given θ."""

    has_guide = True
    _warned = False

    def step(self, closure: Closure | None = None) -> Any:
        """Make one step from the gradients in `.grad`; returns the closure's loss, if given one."""
        for group in self.param_groups:
            if not group["coupled"] and group["replicas"] > 1:
                self._check_alone(group)
            elif not group["coupled"]:
                self._forget_guide(group["params"])
        return super().step(closure)

    def _check_alone(self, group: Group) -> None:
        """Refuse what the one network of a phase without coupling, before the replicas, cannot."""
        if heat_of(group):
            raise ConfigError(
                f"noise must be off in a phase without coupling with replicas={group['replicas']}, "
                f'got noise={group["noise"]!r}; use Cyclical(..., coupled="noisy"), or "always"'
            )
        if self._ranks is not None:
            raise ConfigError(
                f"coupled must be True with one of replicas={group['replicas']} on each process, "
                f'which have no network in common, got coupled=False; use coupled="always", or one '
                f"process"
            )

    def _forget_guide(self, params: list[Tensor]) -> None:
        for state in [self.state[p] for p in params if "guide" in self.state.get(p, ())]:
            state.pop("guide")
            state.pop("guide_velocity", None)

    def guide(self) -> AbstractContextManager[None]:
        """Show θ_a to the model inside a `with` block; buffers (batch norm) are the caller's."""
        if self._watch:
            self._watch.report()
        return self._showing_guide()

    @contextmanager
    def _showing_guide(self) -> Iterator[None]:
        with self.drawn_guides(), showing(self, "guide"):
            yield

    @contextmanager
    def drawn_guides(self) -> Iterator[None]:
        """Inside the block `state` also holds θ_a of collapsed groups, drawn for this step.

        Before the first step there is nothing to draw: θ_a is θ.
        """
        self._refuse_inside_block("guide()")
        drawn: list[Tensor] = []
        try:
            for group in self.param_groups:
                update = self.guide_draw(group) if group["step"] else None
                if update is None:
                    continue
                params = [p for p in group["params"] if p.requires_grad]
                drawn += params
                guides = [self._variable(p, "guide", self._theta(p)) for p in params]
                self._move(update, group, params, [guides], [], stream=GUIDE_STREAM)
            yield
        finally:
            for p in drawn:
                self.state[p].pop("guide", None)
                if not self.state[p]:
                    del self.state[p]

    @staticmethod
    def guide_draw(group: Group) -> Update | None:
        """The draw of θ_a given θ of a collapsed group; None where there is nothing to draw."""
        heat = heat_of(group)
        if group["guide_update"] != "collapsed" or not heat:
            return None
        return Update(draw, Guide, Spread(math.sqrt(group["eta"] * heat)), normals=1)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_combination(group)
        if group["guide_update"] == "euler":
            self._check_coupling(group)

    def _check_coupling(self, group: Group) -> None:
        least, formula, told = least_eta(group), _limit_in_words(group), _given(group)
        if group["eta"] <= least:
            raise ConfigError(
                f"eta must be greater than {formula}{least:.4g} for guide_update='euler', which "
                f"diverges below, got {told}; use {_remedy(group)}"
            )
        doubt = _doubt(group)
        if doubt and not self._warned:
            self._warned = True
            warnings.warn(f"{doubt} ({told}); use {_remedy(group)}", UserWarning, stacklevel=2)


def _doubt(group: Group) -> str:
    """What is to be feared at an η that is allowed; "" if nothing."""
    safe = safe_eta(group)
    if rounds_between(group) > 1 and group["eta"] <= safe:
        return (
            f"eta is not above {safe:.4g}: on some curvatures of the energy, at most num_data/lr, "
            f"replicas then diverge from a guide that moves only with exchange_every"
        )
    coupling = tightness(group, group["eta"])
    if group["integrator"] == "euler" and coupling > OSCILLATES:
        share = "(replicas+1)·exchange_every/2·" if group["replicas"] > 1 else ""
        return (
            f"{share}lr/(eta·num_data) = {coupling:.3g} is above {OSCILLATES}: θ and θ_a "
            f"oscillate around each other and the chain is hotter than T"
        )
    return ""


def _limit_in_words(group: Group) -> str:
    """The formula of `least_eta`; nothing where it has none."""
    if rounds_between(group) > 1:
        return ""
    share = "(replicas+1)/2·" if group["replicas"] > 1 else ""
    return f"{share}lr/((1+momentum)·num_data) = "


def _given(group: Group) -> str:
    """What the limit of η depends on."""
    names = ["lr", "num_data", "eta"]
    names += ["momentum"] if group["momentum"] else []
    names += ["replicas", "exchange_every"] if group["replicas"] > 1 else []
    return ", ".join(f"{name}={group[name]!r}" for name in names)


def _remedy(group: Group) -> str:
    """What keeps the pair together, of what exists with the group's other settings."""
    if group["replicas"] > 1:
        less = ", a smaller exchange_every" if group["exchange_every"] > 1 else ""
        return f"a larger eta, a smaller lr{less} or fewer replicas"
    bound = group["momentum"] or group["integrator"] != "euler"
    return f'a larger eta, a smaller lr, or guide_update="{"collapsed" if bound else "exact"}"'


def check_combination(group: dict[str, Any]) -> None:
    """Refuse a combination of integrator, guide_update, momentum and decay that does not exist."""
    integrator, guide_update = pair = group["integrator"], group["guide_update"]
    if pair not in TAKES_MOMENTUM:
        raise ConfigError(
            f"guide_update must be 'euler' or 'collapsed' with integrator={integrator!r}, got "
            f'guide_update={guide_update!r}; use one of them, or integrator="euler"'
        )
    needs = f"with guide_update={guide_update!r}"
    remedy = 'guide_update="euler"'
    if guide_update in ("euler", "collapsed"):
        needs, remedy = f"with integrator={integrator!r}", 'integrator="baoab"'
    if group["momentum"] and not TAKES_MOMENTUM[pair]:
        raise ConfigError(
            f"momentum must be 0 {needs}, got momentum={group['momentum']!r}; use {remedy}"
        )
    if group["guide_weight_decay"] and pair != ("euler", "euler"):
        needs = f"with guide_update={guide_update!r} and integrator={integrator!r}"
        raise ConfigError(
            f"guide_weight_decay must be 0 {needs}, got guide_weight_decay="
            f'{group["guide_weight_decay"]!r}; use guide_update="euler" and integrator="euler"'
        )


def replicas_in_words(group: Group) -> str:
    """The joint distribution of the replicas and their guide."""
    y = group["replicas"]
    text = posterior_in_words(group).replace("θ ~ exp(−U/T)", "U of each replica")
    joint = f"θ_1 … θ_{y}, θ_a ~ exp(−[Σ U(θ_i) + Σ ‖θ_i−θ_a‖²/(2η)]/T)"
    return f"{joint}; θ_a ~ exp({y}·F(θ_a; η)); {text}"


class Guide(NamedTuple):
    """The variable of a draw, which starts as θ."""

    guide: Tensor


class Spread(NamedTuple):
    """Coefficient of a draw: √(ηT)."""

    spread: float


def draw(v: Guide, eps: Pair | None, c: Spread) -> Guide:
    """θ_a ~ N(θ, ηT·I), from θ."""
    assert eps is not None
    return Guide(v.guide + c.spread * eps[0])
