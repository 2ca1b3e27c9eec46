"""What every sampler is: a `torch.optim.Optimizer` whose hyper-parameters are group entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_mcmc.errors import ConfigError, StateError, check_choice, check_count
from entropy_mcmc.noise import check_seed
from entropy_mcmc.samplers.auto_eta import AUTO, Choice, first_choice, planned_choice
from entropy_mcmc.samplers.explain import Explanation, explain
from entropy_mcmc.samplers.hyper_parameters import hyper_parameters
from entropy_mcmc.samplers.kernel import compiled, parameters
from entropy_mcmc.samplers.kernel.advance import advance, schedule_of
from entropy_mcmc.samplers.kernel.finite_gradients import FiniteWatch
from entropy_mcmc.samplers.kernel.layout import Known, Layout, same
from entropy_mcmc.samplers.kernel.parameters import Closure, Group, Params
from entropy_mcmc.samplers.kernel.rests import RESTS, by_number_left
from entropy_mcmc.samplers.kernel.step_hooks import profiled, with_hooks
from entropy_mcmc.samplers.kernel.tensor_buckets import slot
from entropy_mcmc.samplers.kernel.variables import WithVariables
from entropy_mcmc.samplers.kernel.without_compiler import without_compiler
from entropy_mcmc.samplers.rule import Update

__all__ = ["Closure", "Group", "Params", "Sampler"]


class Sampler(WithVariables):
    """Base of all samplers.

    A sampler declares its hyper-parameters in its constructor; in `update` its rule, what it keeps
    beside each parameter, and its coefficients; its target; and what of these attributes differs.
    One that takes several gradients per step overrides `step`.

    Attributes:
        needs_closure: Whether `step` takes several gradients, from a closure.
        fresh_batches: Whether a run gives each of them a mini-batch of its own.
        has_guide: Whether it has a guide θ_a beside θ.
        samples_posterior: Whether its samples are of exp(−U/T), and not of another distribution.
        result: What a run keeps: "samples" (states of a chain), "point" (the last state) or
            "draws" (from a distribution around it).
        run_defaults: Hyper-parameters with which `emcmc sample` starts; None: the run chooses.
        entries: Group entries beside the hyper-parameters, with their first values.
        only_at_start: Arguments of the constructor that are no group entries.
        stacked_chains: Chains that each parameter holds, along its first dimension, if not one.
    """

    needs_closure: ClassVar[bool] = False
    fresh_batches: ClassVar[bool] = False
    has_guide: ClassVar[bool] = False
    samples_posterior: ClassVar[bool] = True
    result: ClassVar[str] = "samples"
    run_defaults: ClassVar[Mapping[str, Any]] = {}
    entries: ClassVar[Mapping[str, Any]] = {"noise": True}
    only_at_start: ClassVar[frozenset[str]] = frozenset()
    stacked_chains: int = 1

    # Class attributes, so that copies and unpickled samplers have them.
    _inside: str | None = None  # the block in which the parameters show something else than θ
    _num_data: int | None = None
    _checked: list[Group] | None = None
    _watch: FiniteWatch | None = None
    _known: Known | None = None
    _layouts: Sequence[Layout] = ()  # of the last step
    _warned_of_no_gradient = False
    _chosen: tuple[tuple[int, Choice], ...] = ()  # η of groups that left it open, by number

    def __init__(self, params: Params, given: Mapping[str, Any]) -> None:
        """`given` are the arguments of the subclass's constructor: its `locals()`."""
        check_choice("fused", given["fused"], (True, False, "auto"))
        check_count("check_every", given["check_every"], least=0, remedy="0 switches the check off")
        defaults = {name: given[name] for name in hyper_parameters(type(self))}
        self._num_data = defaults.get("num_data")
        self._prepare(defaults)
        shared = {
            "seed": check_seed(given.get("seed", 0)),
            "step": 0,
            "fused": given["fused"],
            "check_every": given["check_every"],
        }
        super().__init__(parameters.read_once(params), {**defaults, **self.entries, **shared})

    @staticmethod
    def update(group: Group) -> Update:
        """The next step of a group, of a sampler that takes one gradient per step."""
        raise NotImplementedError

    @staticmethod
    def target(group: Group) -> str:
        """What the chain of a group samples from, in words."""
        raise NotImplementedError

    @classmethod
    def stacked_update(cls, group: Group) -> Update:
        """The next step of stacked chains, rows of one matrix."""
        return cls.update(group)

    @staticmethod
    def guide_draw(group: Group) -> Update | None:
        """The draw of a guide given θ, of a sampler that draws it only when it is asked for."""
        return None

    @staticmethod
    def gradients_per_step(group: Mapping[str, Any]) -> int:
        """Gradients that one step takes."""
        return 1

    @staticmethod
    def settles_after(group: Mapping[str, Any]) -> int:
        """Steps after which the coefficients at a constant lr do not depend on the step."""
        return 0

    @classmethod
    def settings(cls, **given: Any) -> Group:
        """Entries of a parameter group with these hyper-parameters, after all checks."""
        make: Any = cls
        group: Group = make([torch.zeros(1, requires_grad=True)], **given).param_groups[0]
        return {name: value for name, value in group.items() if name != "params"}

    def step(self, closure: Closure | None = None) -> Any:
        """Make one step from the gradients in `.grad`; returns the closure's loss, if given one."""
        loss = self._begin(closure)
        with torch.no_grad():
            laid_out = self._laid_out()
            for group, layout in laid_out:
                self._advance(group, layout)
            for group, _ in laid_out:
                if "last_lr" in group:  # an entry of samplers whose velocity depends on it
                    group["last_lr"] = group["lr"]
        self._end()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, as any optimizer does."""
        if set_to_none and not profiled():
            for group in self.param_groups:
                for param in group["params"]:
                    param.grad = None
            return
        without_compiler(Optimizer.zero_grad)(self, set_to_none)

    def _patch_step_function(self) -> None:
        """What torch calls to wrap `step`; its own wrapper costs as much as a small step."""
        kind: Any = type(self)
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{kind.__name__}.zero_grad"
        if not getattr(kind.step, "hooked", False):
            kind.step = with_hooks(kind.step)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; it takes the sampler's defaults and joins at the current step."""
        if self.param_groups:
            param_group.setdefault("step", self.param_groups[0]["step"])
        self._prepare(param_group)
        without_compiler(Optimizer.add_param_group)(self, param_group)
        group = self.param_groups[-1]
        try:
            for param in group["params"]:
                parameters.check_parameter(param)
            if group.get("eta") == AUTO:
                self._choose(len(self.param_groups) - 1, first_choice(group))
            self._check_group(group)
        except ConfigError:
            self.param_groups.pop()
            raise
        self._checked = self._watch = self._known = None

    def plan_cycle(self, steps: int, burn_in: float) -> None:
        """Fit an η that is "auto" to cycles of `steps` steps; `Cyclical` calls it at the start.

        Steps of replicas are rounds.
        """
        for place, _ in self._chosen:
            choice = planned_choice(self.param_groups[place], steps, burn_in)
            if choice is not None:
                self._choose(place, choice)

    def check_at(self, place: int, **values: Any) -> None:
        """Refuse values that a schedule is going to set in group number `place`."""
        self._check_group({**self.param_groups[place], **values})

    def _choose(self, place: int, choice: Choice) -> None:
        self.param_groups[place]["eta"] = choice.eta
        self._chosen = tuple({**dict(self._chosen), place: choice}.items())

    def explain(self) -> Explanation:
        """Sizes of drift, coupling and noise, the stability margin and the implied target."""
        return explain(self, {place: choice.reason for place, choice in self._chosen})

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers; `load_state_dict` continues the chain bit for bit."""
        self._refuse_inside_block("state_dict()")
        if self._watch:
            self._watch.report()
        return without_compiler(Optimizer.state_dict)(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave, in the precision in which it was saved."""
        self._refuse_inside_block("load_state_dict()")
        state_dict = parameters.with_later_entries(state_dict, self.param_groups)
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=False):
            parameters.check_origin(self, saved, group)
        without_compiler(Optimizer.load_state_dict)(self, state_dict)
        for param, name, value in parameters.saved_variables(state_dict, self.param_groups):
            self.state[param][name] = value.detach().clone().to(param.device)
        groups = self.param_groups
        self._chosen = tuple((i, c) for i, c in self._chosen if groups[i]["eta"] == c.eta)
        self._checked = self._watch = self._known = None

    def _prepare(self, group: Group) -> None:
        """Turn what is only given at the start into group entries."""
        parameters.state_prior(group, group.get("num_data", self._num_data))
        for name in self.only_at_start:
            group.pop(name, None)

    def _check_group(self, group: Group) -> None:
        """Refuse hyper-parameters that can never work."""
        for declared in hyper_parameters(type(self)).values():
            if declared.name in group:
                group[declared.name] = declared.check(group[declared.name])

    def _recheck(self) -> None:
        """Check the groups again whenever a schedule or the user changed them."""
        ignored = {"params", "step", RESTS, *self.entries}
        current = [{k: v for k, v in g.items() if k not in ignored} for g in self.param_groups]
        if current != self._checked:
            for group in self.param_groups:
                self._check_group(group)
            self._checked = current

    def _begin(self, closure: Closure | None) -> Any:
        self._refuse_inside_block("step()")
        if self.needs_closure:
            parameters.check_closure(self, closure)
        self._recheck()
        return None if closure is None or self.needs_closure else self._evaluate(closure)

    def _end(self) -> None:
        for group in self.param_groups:
            group["step"] += 1
        group = self.param_groups[0]
        if self._watch and group["check_every"] and group["step"] % group["check_every"] == 0:
            self._watch.report()

    def _evaluate(self, closure: Closure) -> Any:
        with torch.enable_grad():
            return closure()

    def _active(self) -> list[tuple[Group, list[Tensor]]]:
        """Groups with their parameters that have a gradient, after a check of the gradients."""
        pairs = [(g, [p for p in g["params"] if p.grad is not None]) for g in self.param_groups]
        active = [(group, params) for group, params in pairs if params]
        self._warn_of_none(active)
        self._watch_gradients([p for _, params in active for p in params])
        return active

    def _watch_gradients(self, params: list[Tensor]) -> None:
        for param in params:
            parameters.check_gradient(param.grad)
        if not self.param_groups[0]["check_every"]:
            return
        if self._watch is None:
            self._watch = FiniteWatch(parameters.names(self.param_groups))
        index, grads = self._all().index, [p.grad for p in params if p.grad is not None]
        self._watch.record([index[p] for p in params], grads, self.param_groups[0]["step"])

    def _laid_out(self) -> list[tuple[Group, Layout]]:
        """Groups with a gradient, which their layouts have taken and checked."""
        laid_out = self._all().take_gradients(self.param_groups)
        self._warn_of_none(laid_out)
        watched = self.param_groups[0]["check_every"]
        if watched and not all([layout.gradients_are_finite() for _, layout in laid_out]):
            self._watch_gradients([p for _, layout in laid_out for p in layout.params])
        layouts = [layout for _, layout in laid_out]
        if same(layouts, self._layouts):  # what moved at the last step moves now
            return laid_out
        self._layouts = layouts
        return self._after_rests(laid_out)

    def _after_rests(self, laid_out: list[tuple[Group, Layout]]) -> list[tuple[Group, Layout]]:
        """The same, with parameters that a rule averaging noise moves after a rest apart."""
        layouts = {id(group): layout for group, layout in laid_out}
        turns: list[tuple[Group, Layout]] = []
        for group in self.param_groups:
            layout = layouts.get(id(group))
            together = [] if layout is None else [layout]
            if self.update(group).pairs > 1:
                parts = by_number_left(group, layout.params if layout else [])
                if layout and set(parts) - {None}:
                    together = [self._all().apart(part, left) for left, part in parts.items()]
                    layout.forget_gradients()
            turns += [(group, part) for part in together]
        return turns

    def _warn_of_none(self, active: Sequence[object]) -> None:
        if not active and not self._warned_of_no_gradient:
            self._warned_of_no_gradient = True
            parameters.warn_of_no_gradient()

    def _all(self) -> Known:
        """All parameters in the optimizer's order; index there is the address in the noise."""
        if self._known is None or not self._known.fits(self.param_groups):
            self._known = Known(self.param_groups, self.stacked_chains)
        return self._known

    def _gradients(self, params: list[Tensor]) -> list[Tensor]:
        grads = [p.grad for p in params if p.grad is not None]
        return [g.float() if g.dtype == torch.bfloat16 else g for g in grads]

    @torch.no_grad()
    def _move(
        self,
        update: Update,
        group: Group,
        params: list[Tensor],
        moved: Sequence[Sequence[Tensor]],
        read: Sequence[Sequence[Tensor]],
        *,
        stream: int = 0,
        inner: int = 0,
        left: int | None = None,
    ) -> None:
        """Apply a rule to the columns of its variables, and show the new θ to the model."""
        index = self._all().index
        slots = tuple(slot(index[p], p) for p in params)
        schedule = schedule_of(update, group, stream, inner, left)
        advance(update, moved, read, schedule, slots, fused=self._use_fused(group, params))
        self._publish(params)

    def _advance(self, group: Group, layout: Layout) -> None:
        """One step of a group from the gradients that its layout has taken."""
        update, params = self.update(group), layout.params
        moved = self._variables(update, group, params, layout)
        fused = self._use_fused(group, params)
        schedule = schedule_of(update, group, left=layout.left)
        layout.advance(update, moved, schedule, fused=fused)
        layout.forget_gradients()
        self._publish(layout.low)

    @property
    def compiled_from(self) -> int | None:
        """The step from which on steps are compiled, where there is a compiler; None for never."""
        return compiled.switch_step(self.param_groups[0]["fused"], self._all().size)

    def _use_fused(self, group: Group, params: list[Tensor]) -> bool:
        if not group["fused"]:
            return False
        size, device = self._all().size, params[0].device
        return compiled.wanted(group["fused"], size, group["step"], device.type)

    @contextmanager
    def _block(self, call: str) -> Iterator[None]:
        """A block `with sampler.CALL:` in which the parameters do not show θ."""
        self._refuse_inside_block(call)
        self._inside = call
        try:
            yield
        finally:
            self._inside = None

    def _refuse_inside_block(self, what: str) -> None:
        if self._inside:
            raise StateError(
                f"{what} inside `with sampler.{self._inside}:` would take for θ what the block "
                f"shows; leave the block first"
            )
