r"""Entropy-SGD (Chaudhari et al., 2017): descend the local entropy, estimated by an inner chain.

From θ′ = mean = θ, L times:

.. math::
    \theta' &\leftarrow \theta' - lr_{in}[\hat g(\theta') + \lambda\theta' +
        (\theta'-\theta)/(\eta N)] + \sqrt{2\,lr_{in}T/N}\,\epsilon \\
    mean &\leftarrow (1-a)\,mean + a\,\theta'

then the outer step

.. math:: \theta \leftarrow \theta - lr\,(\theta - mean)/(\eta N)

Each step costs L gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers.base import Closure, Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    Eta,
    LearningRate,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
    at_most,
    count,
    positive,
)
from entropy_mcmc.samplers.rule import Pair, Update
from entropy_mcmc.units import Scales, scales

INNER_STREAM = 1  # of the noise, whose addresses allow 2^16 inner steps
Columns = dict[Tensor, Tensor]


class EntropySGD(Sampler):
    """Minimise −log of the local entropy of the loss.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate of the outer step; lr/(ηN) = 1 moves θ onto the inner mean.
        num_data: number N of training examples; required.
        eta: η, the width of the local entropy (at T = 1, a variance); "auto": wide enough that
            the inner chain does not fill it.
        inner_lr: learning rate of the inner chain for the mean loss; None takes `lr`.
        inner_steps: L, the number of inner steps, and so of gradients, per step; the same for
            all groups.
        averaging: a, the weight of the newest inner θ′ in the running mean.
        temperature: T of the inner chain's target.
        weight_decay: λ of the prior N(0, I/(λN)).
        prior_variance: variance v of the prior N(0, v·I), instead of weight_decay = 1/(N·v).
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    needs_closure = True
    fresh_batches = True
    result = "point"
    outer_noise = False
    run_defaults: ClassVar = {
        "lr": None,
        "eta": None,
        "inner_lr": 0.1,
        "inner_steps": 5,
        "prior_variance": 0.04,
        "temperature": 1e-4,
    }

    def __init__(
        self,
        params: Params,
        lr: LearningRate,
        *,
        num_data: NumData = None,
        eta: Eta = None,
        inner_lr: Annotated[float | None, positive()] = None,
        inner_steps: Annotated[int, at_most(2**16, count())] = 20,
        averaging: Annotated[float, at_most(1, positive())] = 0.75,
        temperature: Temperature = 1.0,
        weight_decay: WeightDecay = 0.0,
        prior_variance: PriorVariance = None,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        inner_lr = lr if inner_lr is None else inner_lr
        super().__init__(params, locals())

    def step(self, closure: Closure | None = None) -> Any:
        """Run the inner chain, L calls of `closure`, then step; returns the first loss."""
        self._begin(closure)
        assert closure is not None
        loss = self._evaluate(closure)
        active = self._active()
        params = [p for _, members in active for p in members]
        with self._restored_on_error(params) as copies:
            anchors = dict(zip(params, copies, strict=True))
            means = {p: anchor.clone() for p, anchor in anchors.items()}
            for inner in range(self.param_groups[0]["inner_steps"]):
                if inner:
                    self._evaluate(closure)
                    self._watch_gradients(params)
                for group, members in active:
                    self._inner_step(group, members, anchors, means, inner)
        for group, members in active:
            self._outer_step(group, members, anchors, means)
        self._end()
        return loss

    def _inner_step(
        self, group: Group, params: list[Tensor], anchors: Columns, means: Columns, inner: int
    ) -> None:
        s = scales(group, lr="inner_lr")
        c = InnerCoefficients(s.lr, s.decay, s.coupling, s.noise, group["averaging"])
        update = Update(inner_chain, Inner, c, normals=1 if s.noise else 0)
        moved = [[self._theta(p) for p in params], [means[p] for p in params]]
        read = [self._gradients(params), [anchors[p] for p in params]]
        self._move(update, group, params, moved, read, stream=INNER_STREAM, inner=inner)

    def _outer_step(
        self, group: Group, params: list[Tensor], anchors: Columns, means: Columns
    ) -> None:
        s = scales(group)
        noise = s.noise if self.outer_noise else 0.0
        c = OuterCoefficients(coupling=s.coupling, noise=noise)
        update = Update(outer_step, Outer, c, normals=1 if noise else 0)
        read = [[anchors[p] for p in params], [means[p] for p in params]]
        self._move(update, group, params, [[self._theta(p) for p in params]], read)

    @staticmethod
    def gradients_per_step(group: Mapping[str, Any]) -> int:
        """L."""
        steps: int = group["inner_steps"]
        return steps

    @staticmethod
    def target(group: Group) -> str:
        """None: it is an optimizer."""
        return "none: descends −F(θ; η), the negative local entropy of U/T"

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        for name, scale in (("lr", scales(group)), ("inner_lr", scales(group, lr="inner_lr"))):
            self._check_pull(name, scale, group)
        first = self.param_groups[0]["inner_steps"]
        if group["inner_steps"] != first:
            raise ConfigError(
                f"inner_steps must be the same for all groups, because each gradient is taken for "
                f"all of them, got inner_steps={group['inner_steps']!r} beside {first!r}"
            )

    def _check_pull(self, name: str, scale: Scales, group: Group) -> None:
        if scale.coupling >= 2:
            raise ConfigError(
                f"eta must be greater than {name}/(2·num_data) = {scale.alpha / 2:.4g}, below "
                f"which the step overshoots and diverges, got eta={group['eta']!r}, "
                f"{name}={group[name]!r}, num_data={group['num_data']!r}; use a larger eta or a "
                f"smaller {name}"
            )


class Inner(NamedTuple):
    """Variables of the inner chain: θ′ and its running mean, both from θ."""

    theta: Tensor
    mean: Tensor


class InnerCoefficients(NamedTuple):
    """Coefficients of an inner step: lr_in, lr_in·λ, lr_in/(ηN), noise scale and a."""

    lr: float
    decay: float
    coupling: float
    noise: float
    averaging: float


class Outer(NamedTuple):
    """The variable of the outer step."""

    theta: Tensor


class OuterCoefficients(NamedTuple):
    """Coefficients of the outer step: lr/(ηN) and noise scale."""

    coupling: float
    noise: float


def inner_chain(
    v: Inner, grad: Tensor, anchor: Tensor, eps: Pair | None, c: InnerCoefficients
) -> Inner:
    """A Langevin step of θ′ around the anchor θ, and the mean that follows it."""
    theta = v.theta - c.lr * grad - c.decay * v.theta - c.coupling * (v.theta - anchor)
    if eps is not None:
        theta = theta + c.noise * eps[0]
    return Inner(theta, v.mean + c.averaging * (theta - v.mean))


def outer_step(
    v: Outer, anchor: Tensor, mean: Tensor, eps: Pair | None, c: OuterCoefficients
) -> Outer:
    """Outer step from the anchor θ towards the inner mean, whatever θ′ is now."""
    theta = anchor - c.coupling * (anchor - mean)
    return Outer(theta if eps is None else theta + c.noise * eps[0])
