r"""Replicas: y networks θ_1 … θ_y, each with its own mini-batch, coupled to one guide θ_a.

.. math::
    \theta_i &\leftarrow \text{a step with the gradient}\quad
        \hat g_i(\theta_i) + \lambda\theta_i + (\theta_i-\theta_a)/(\eta N) \\
    \theta_a &\leftarrow \text{a step with the gradient}\quad
        \textstyle\sum_i (\theta_a-\theta_i)/(\eta N)

all from the old values, each a step of the integrator (`sgld.py`, `sghmc.py`) with its own noise.

Target: exp(−[Σ U(θ_i) + Σ ‖θ_i−θ_a‖²/(2η)]/T). Given θ_a the replicas are independent, so that θ_a
has the density exp(y·F(θ_a; η)), F = log ∫ exp(−[U(θ) + ‖θ−θ_a‖²/(2η)]/T) dθ: the smoothed
posterior to the power y. Given the replicas, θ_a ~ N(mean θ_i, ηT/y·I). y = 1 is the paper.

On a quadratic energy of curvature h the joint Hessian A has h+c on the diagonal of each replica,
yc on that of θ_a, and −c between θ_a and each replica, c = 1/η. The covariance is
T[A(I − αA/(2(1+μ)))]⁻¹ for Euler steps and T·A⁻¹ for `lm` and `baoab`. A splits: along differences
of replicas it is h+c; of (√y·mean θ_i, θ_a) it is [[h+c, −√y·c], [−√y·c, yc]]
(`stationary.replica_covariance`). At h = 0 its largest eigenvalue is (y+1)c: stable if
η > (y+1)·lr/(2(1+μ)N); for a guide that moves less often, see `exchange_limit.py`.

One call of `step` is one gradient: it moves the replica that is in the model, and puts the next one
into its place. After y calls, a round, the guide moves. With `exchange_every` = k it moves in every
k-th round only, by the sum of the pulls and with k times the variance of noise: exact for k = 1.
Averaged noise (`lm`) is shared by two moves of its own, which are k rounds apart. A parameter that
has no gradient for a replica stays, as in torch, and pulls the guide all the same.
While the group entry `coupled` is False (burn-in), all y calls of a round move one network, as SGD
does; at the first coupled round replicas and guide start as that network, the replicas with its
velocity, the guide at rest.
On several processes (`spread_replicas.py`) every process keeps its own replica, one call is one
round, and the sum of θ_i−θ_a is all that is exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_count
from entropy_mcmc.samplers.base import Closure, Group
from entropy_mcmc.samplers.kernel.rests import by_number_left
from entropy_mcmc.samplers.kernel.swap import showing
from entropy_mcmc.samplers.sghmc import alone_update
from entropy_mcmc.samplers.spread_replicas import SpreadReplicas, slot, sum_over, variable_of
from entropy_mcmc.units import tie

GUIDE_STREAM = 3  # of the guide's noise; replica i has its own `inner` of stream 0


class Replicated(SpreadReplicas):
    """A sampler whose groups may have several replicas, entry `replicas`, of one guide."""

    def step(self, closure: Closure | None = None) -> Any:
        """Make one step from the gradients in `.grad`; returns the closure's loss, if given one.

        With replicas it is that of the replica in the model, and leaves the next one there.
        """
        if self.num_replicas == 1:
            return super().step(closure)
        loss = self._begin(closure)
        current = self.current_replica
        if current == 0 or self._ranks is not None:
            for group in self.param_groups:
                group["round_lr"] = group["lr"]  # one lr for all replicas of a round
            if not self.param_groups[0]["coupled"]:
                self._become_one()
        # A round that began with replicas ends with them.
        alone = not (self.param_groups[0]["coupled"] or self._with("guide"))
        active = self._active()
        for group, params in active:
            (self._move_alone if alone else self._move_replica)(group, params, current)
        if not alone:
            self._pass_over(active, current)
        if self._ranks is not None and self._guide_is_due():
            self._begin_on_all()
        if self._ranks is None:
            self._show(current, (current + 1) % self.num_replicas)
        if self._ranks is not None or current == self.num_replicas - 1:
            self._end_round()
        return loss

    @contextmanager
    def replica(self, number: int) -> Iterator[None]:
        """Show replica `number`, from 0, to the model inside a `with` block.

        Parameters only: the buffers are those of the one model, through which all replicas go.
        Running statistics of batch norm mix all of them; compute those of this replica before it
        predicts (`torch.optim.swa_utils.update_bn`). With one replica for each process this is a
        collective call.
        """
        number = check_count("number", number, least=0)
        if number >= self.num_replicas:
            raise ConfigError(
                f"number must be from 0 to {self.num_replicas - 1}, the replicas of this sampler, "
                f"got number={number!r}"
            )
        block = f"replica({number})"
        if self._ranks is not None:
            with self._received(number), showing(self, "shown", block):
                yield
            return
        # The slot of the replica in the model is out of date; that of no other is.
        name = slot(number) if number != self.current_replica else ""
        with showing(self, name, block):
            yield

    @torch.no_grad()
    def replica_value(self, param: Tensor, number: int) -> Tensor:
        """θ of replica `number` in at least float32; collective where each process has one."""
        theta = self._theta(param).detach()
        if self._ranks is not None:
            return self._broadcast(theta, number)
        alone = "guide" not in self.state[param]  # the one network of burn-in stands for all
        own = alone or number == self.current_replica
        return theta if own else cast(Tensor, self.state[param][slot(number)])

    @torch.no_grad()
    def replica_mean(self, param: Tensor) -> Tensor:
        """Mean of a parameter over the replicas; collective where each process has one."""
        if self._ranks is not None:
            total = self._theta(param).detach().clone()
            torch.distributed.all_reduce(total, group=self._ranks)
            return total / self.num_replicas
        if self.num_replicas == 1 or "guide" not in self.state[param]:
            return self._theta(param).detach()
        current, state = self.current_replica, self.state[param]
        others = [state[slot(i)] for i in range(self.num_replicas) if i != current]
        return sum(others, self._theta(param).detach()) / self.num_replicas

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        if group["replicas"] != self.num_replicas:
            raise ConfigError(
                f"replicas must be the same in all groups, got replicas={group['replicas']} and "
                f"{self.num_replicas}"
            )
        if group["replicas"] > 1 and group["guide_update"] != "euler":
            raise ConfigError(
                f"guide_update must be 'euler' with replicas={group['replicas']}, got "
                f'guide_update={group["guide_update"]!r}; use guide_update="euler" with any '
                f"integrator, or replicas=1"
            )
        if group["replicas"] > 1 and group["guide_weight_decay"]:
            raise ConfigError(
                f"guide_weight_decay must be 0 with replicas={group['replicas']}, got "
                f"guide_weight_decay={group['guide_weight_decay']!r}"
            )

    @torch.no_grad()
    def _move_replica(self, group: Group, params: list[Tensor], number: int) -> None:
        """The step of one replica, pulled to the guide; what it is pulled by is added up."""
        frozen = {**group, "lr": group["round_lr"]}
        for p in params:
            self._begin_replicas(p)
        update = alone_update(frozen)
        parts = by_number_left(group, params, number) if update.pairs > 1 else {None: params}
        for left, part in parts.items():
            slopes = self._pull_guide(part)
            torch._foreach_mul_(slopes, tie(group["num_data"], group["eta"]))
            torch._foreach_add_(slopes, self._gradients(part))
            moved = [[self._theta(p).detach() for p in part]]
            for name in update.starts:  # the velocity, which starts at rest
                moved.append([self._variable(p, variable_of(name, number), 0.0) for p in part])
            self._move(update, frozen, part, moved, [slopes], inner=number, left=left)

    def _pull_guide(self, params: list[Tensor]) -> list[Tensor]:
        """Add θ−θ_a of the replica in the model to the pulls on the guide; returns it."""
        gaps = [torch.sub(self._theta(p).detach(), self.state[p]["guide"]) for p in params]
        torch._foreach_add_([self.state[p]["pull"] for p in params], gaps)
        return gaps

    @torch.no_grad()
    def _pass_over(self, active: list[tuple[Group, list[Tensor]]], number: int) -> None:
        """Parameters of a replica without a gradient stay, and go on to pull the guide.

        The guide moves, with its noise: without that pull it would be hotter than T.
        """
        resting = [p for p in self._with("guide") if p.grad is None]
        if resting:
            self._pull_guide(resting)
        at_rest = {id(group) for group in self.param_groups} - {id(group) for group, _ in active}
        for group in self.param_groups:
            if id(group) in at_rest and alone_update(group).pairs > 1:
                by_number_left(group, [], number)

    @torch.no_grad()
    def _begin_replicas(self, param: Tensor) -> None:
        """All replicas and the guide start as θ at its first gradient, or after burn-in.

        Replicas go on with the velocity of burn-in; the guide, which did not move, is at rest.
        """
        if "guide" in self.state[param]:
            return
        velocity = self.state[param].pop("velocity", None)  # of the one network
        self._variable(param, "guide", self._theta(param))
        self._variable(param, "pull", 0.0)
        if self._ranks is None:
            for number in range(self.num_replicas):
                self._variable(param, slot(number), self._theta(param))
                if velocity is not None:
                    self.state[param][variable_of("velocity", number)] = velocity.clone()

    def _move_alone(self, group: Group, params: list[Tensor], number: int) -> None:
        """A step of the one network of a phase without coupling: SGD, as there is no noise."""
        rate = group["round_lr"]
        frozen = {**group, "lr": rate, "last_lr": rate if number else group["last_lr"]}
        update = alone_update(frozen)
        moved = self._variables(update, frozen, params)
        self._move(update, frozen, params, moved, [self._gradients(params)])

    def _become_one(self) -> None:
        """Forget the guide and all replicas but the first, which is in the model."""
        for state in [self.state[p] for p in self._with("guide")]:
            velocity = state.get(variable_of("velocity", 0))
            for name in [
                n for n in state if n.startswith(("guide", "pull", "theta_", "velocity_"))
            ]:
                del state[name]
            if velocity is not None:
                state["velocity"] = velocity

    @torch.no_grad()
    def _show(self, old: int, new: int) -> None:
        """Put a replica in place of another; its velocity stays beside it."""
        params = self._with("guide")
        if params:
            thetas = [self._theta(p) for p in params]
            torch._foreach_copy_([self.state[p][slot(old)] for p in params], thetas)
            torch._foreach_copy_(thetas, [self.state[p][slot(new)] for p in params])
            self._publish(params)
        for group in self.param_groups:
            group["replica"] = new

    def _guide_is_due(self) -> bool:
        """Whether the guide of a group moves at the end of this round."""
        return any((g["step"] + 1) % g["exchange_every"] == 0 for g in self.param_groups)

    def _end_round(self) -> None:
        for group in self.param_groups:
            if (group["step"] + 1) % group["exchange_every"] == 0:
                self._move_guide(group, [p for p in group["params"] if "guide" in self.state[p]])
                group["exchange_lr"] = group["round_lr"]  # with which the guide's velocity was made
            group["last_lr"] = group["round_lr"]
        self._end()

    @torch.no_grad()
    def _move_guide(self, group: Group, params: list[Tensor]) -> None:
        """The step of the guide by the pulls of all replicas since its last one."""
        if not params:
            return
        pulls = [self.state[p]["pull"] for p in params]
        if self._ranks is not None:
            sum_over(self._ranks, pulls)
        rounds = group["exchange_every"]
        last = group["exchange_lr"] or group["last_lr"]  # a state of earlier versions lacks it
        rates = {"lr": rounds * group["round_lr"], "last_lr": rounds * last}
        slow = {**group, **rates, "weight_decay": 0.0}
        strength = tie(group["num_data"], group["eta"])
        slopes = torch._foreach_mul(pulls, -strength / rounds)
        update = alone_update(slow)
        moved = [[self.state[p]["guide"] for p in params]]
        moved += [[self._variable(p, f"guide_{n}", 0.0) for p in params] for n in update.starts]
        left = group["step"] + 1 - rounds  # the new number of the last exchange
        self._move(update, slow, params, moved, [slopes], stream=GUIDE_STREAM, left=left)
        torch._foreach_zero_(pulls)
