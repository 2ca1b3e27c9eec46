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

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_count, check_number, check_positive
from entropy_mcmc.noise import INNER_LIMIT
from entropy_mcmc.samplers.base import Closure, Group, Params, Sampler
from entropy_mcmc.samplers.engine import Pair
from entropy_mcmc.samplers.scales import Scales, scales

INNER_STREAM = 1


class EntropySGD(Sampler):
    """Minimise −log of the local entropy of the loss.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate of the outer step; lr/(ηN) = 1 moves θ onto the inner mean.
        num_data: number N of training examples; required.
        eta: η, the width of the local entropy (at T = 1, a variance).
        inner_lr: learning rate of the inner chain for the mean loss; None takes `lr`.
        inner_steps: L, the number of inner steps, and so of gradients, per step.
        averaging: a, the weight of the newest inner θ′ in the running mean.
        temperature: T of the inner chain's target.
        weight_decay: λ of the prior N(0, I/(λN)).
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    needs_closure = True
    outer_noise = False

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        num_data: int | None = None,
        eta: float,
        inner_lr: float | None = None,
        inner_steps: int = 20,
        averaging: float = 0.75,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        defaults = {
            "lr": lr,
            "num_data": num_data,
            "eta": eta,
            "inner_lr": lr if inner_lr is None else inner_lr,
            "inner_steps": inner_steps,
            "averaging": averaging,
            "temperature": temperature,
            "weight_decay": weight_decay,
            "noise": True,
        }
        super().__init__(params, defaults, seed=seed, fused=fused, check_every=check_every)

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
        self,
        group: Group,
        params: list[Tensor],
        anchors: dict[Tensor, Tensor],
        means: dict[Tensor, Tensor],
        inner: int,
    ) -> None:
        scale = scales(group, lr="inner_lr")
        self._move(
            inner_chain,
            group,
            params,
            [[self._theta(p) for p in params], [means[p] for p in params]],
            [self._gradients(params), [anchors[p] for p in params]],
            (scale.lr, scale.decay, scale.coupling, scale.noise, group["averaging"]),
            noisy=scale.noise > 0,
            stream=INNER_STREAM,
            inner=inner,
        )

    def _outer_step(
        self,
        group: Group,
        params: list[Tensor],
        anchors: dict[Tensor, Tensor],
        means: dict[Tensor, Tensor],
    ) -> None:
        scale = scales(group)
        noise = scale.noise if self.outer_noise else 0.0
        self._move(
            outer_step,
            group,
            params,
            [[self._theta(p) for p in params]],
            [[anchors[p] for p in params], [means[p] for p in params]],
            (scale.coupling, noise),
            noisy=noise > 0,
        )

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_positive("inner_lr", group["inner_lr"])
        check_count("inner_steps", group["inner_steps"])
        if group["inner_steps"] > INNER_LIMIT:
            raise ConfigError(
                f"inner_steps must be at most {INNER_LIMIT}, got inner_steps={group['inner_steps']}"
            )
        averaging = check_number("averaging", group["averaging"])
        if not 0 < averaging <= 1:
            raise ConfigError(
                f"averaging must be greater than 0 and at most 1, got averaging={averaging!r}"
            )
        for name, scale in (("lr", scales(group)), ("inner_lr", scales(group, lr="inner_lr"))):
            self._check_pull(name, scale, group)

    def _check_pull(self, name: str, scale: Scales, group: Group) -> None:
        if scale.coupling >= 2:
            raise ConfigError(
                f"eta must be greater than {name}/(2·num_data) = {scale.alpha / 2:.4g}, below "
                f"which the step overshoots and diverges, got eta={group['eta']!r}, "
                f"{name}={group[name]!r}, num_data={group['num_data']!r}; use a larger eta or a "
                f"smaller {name}"
            )

    def _target(self, group: Group) -> str:
        return "none: descends −F(θ; η), the negative local entropy of U/T"


def inner_chain(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """(θ′, mean) from (θ′, mean, ĝ, θ) and (lr_in, lr_in·λ, lr_in/(ηN), noise scale, a)."""
    theta, mean, grad, anchor = values
    lr, decay, coupling, noise, averaging = coefficients
    theta = theta - lr * grad - decay * theta - coupling * (theta - anchor)
    if eps is not None:
        theta = theta + noise * eps[0]
    return theta, mean + averaging * (theta - mean)


def outer_step(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor]:
    """θ from (θ′, θ, mean) and (lr/(ηN), noise scale)."""
    _, anchor, mean = values
    coupling, noise = coefficients
    theta = anchor - coupling * (anchor - mean)
    return (theta if eps is None else theta + noise * eps[0],)
