"""What every sampler shares: checks, state, the step counter, and how a rule is applied."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_mcmc.errors import ConfigError, StateError, check_choice, check_count
from entropy_mcmc.noise import check_seed, step_schedule
from entropy_mcmc.samplers import fused as compiled
from entropy_mcmc.samplers.buckets import slot
from entropy_mcmc.samplers.engine import Rule, advance
from entropy_mcmc.samplers.explain import Explanation, explain
from entropy_mcmc.samplers.finite import FiniteWatch
from entropy_mcmc.samplers.scales import check_scales

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
Closure = Callable[[], Any]
Group = dict[str, Any]

SMALL_MODEL = 2**16  # parameters below which `fused="auto"` never compiles
# Entries that only some samplers have: they tell whose state it is. Schedulers add other names.
_OWN_ENTRIES = {"eta", "momentum", "rho", "temperature"}
WORTH_COMPILING = 10**9  # parameter-steps after which a compilation has paid for itself


class Sampler(Optimizer):
    """Base of all samplers: a `torch.optim.Optimizer` whose hyper-parameters are group entries.

    A subclass states its rule in `_update` (one gradient, already in `.grad`) or overrides
    `step` (more than one gradient). See CONTRIBUTING for a skeleton and a checklist.
    """

    needs_closure = False
    _inside_guide = False  # class attributes, so that copies and unpickled samplers have them
    _checked: list[Group] | None = None
    _watch: FiniteWatch | None = None
    _warned_of_no_gradient = False

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        *,
        seed: int | None,
        fused: bool | str,
        check_every: int,
    ) -> None:
        check_choice("fused", fused, (True, False, "auto"))
        check_count("check_every", check_every, least=0, remedy="0 switches the check off")
        shared = {"seed": check_seed(seed), "step": 0, "fused": fused, "check_every": check_every}
        super().__init__(read_once(params), {**defaults, **shared})

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; it takes the sampler's defaults and joins at the current step."""
        if self.param_groups:
            param_group.setdefault("step", self.param_groups[0]["step"])
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            for param in group["params"]:
                check_parameter(param)
            self._check_group(group)
        except ConfigError:
            self.param_groups.pop()
            raise
        self._checked = self._watch = None

    def step(self, closure: Closure | None = None) -> Any:
        """Make one step from the gradients in `.grad`; returns the closure's loss, if given one."""
        loss = self._begin(closure)
        for group, params in self._active():
            self._update(group, params)
        self._end()
        return loss

    def _update(self, group: Group, params: list[Tensor]) -> None:
        """Move the parameters of one group that have a gradient."""
        raise NotImplementedError

    def _target(self, group: Group) -> str:
        """What the chain of this group samples from, in words, for `explain`."""
        raise NotImplementedError

    def _check_group(self, group: Group) -> None:
        check_scales(group)

    def _begin(self, closure: Closure | None) -> Any:
        self._refuse_inside_guide("step()")
        if self.needs_closure and closure is None:
            raise ConfigError(
                f"{type(self).__name__}.step needs a closure that clears the gradients, computes "
                f"the loss, calls backward and returns the loss, got closure=None; "
                f"pass step(closure)"
            )
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

    def _recheck(self) -> None:
        """Check the groups again whenever a schedule or the user changed them."""
        current = [
            {k: v for k, v in group.items() if k not in ("params", "step", "last_lr")}
            for group in self.param_groups
        ]
        if current != self._checked:
            for group in self.param_groups:
                self._check_group(group)
            self._checked = current

    def _active(self) -> list[tuple[Group, list[Tensor]]]:
        """Groups with their parameters that have a gradient, after a check of the gradients."""
        found = [(g, [p for p in g["params"] if p.grad is not None]) for g in self.param_groups]
        active = [(group, params) for group, params in found if params]
        if not active:
            self._warn_of_no_gradient()
        self._watch_gradients([p for _, params in active for p in params])
        return active

    def _warn_of_no_gradient(self) -> None:
        if self._warned_of_no_gradient:
            return
        self._warned_of_no_gradient = True
        warnings.warn(
            "no parameter of the sampler has a gradient, so that this step moved nothing; call "
            "loss.backward() before step(), and give the sampler the parameters of the model that "
            "computed the loss",
            UserWarning,
            stacklevel=4,
        )

    def _watch_gradients(self, params: list[Tensor]) -> None:
        grads = [p.grad for p in params if p.grad is not None]
        for param, grad in zip(params, grads, strict=True):
            if grad.is_sparse:
                raise ConfigError(
                    f"gradients must be dense, got a sparse one of shape {tuple(param.shape)}; "
                    f"use sparse=False in the embedding"
                )
        if not self.param_groups[0]["check_every"]:
            return
        if self._watch is None:
            self._watch = FiniteWatch(self._names())
        index = self._index()
        self._watch.record([index[p] for p in params], grads, self.param_groups[0]["step"])

    def _index(self) -> dict[Tensor, int]:
        """Index of each parameter in the optimizer's order: its address in the noise."""
        return {p: i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}

    def _names(self) -> list[str]:
        names: list[str] = []
        for number, group in enumerate(self.param_groups):
            given = group.get("param_names")
            for i, p in enumerate(group["params"]):
                plain = f"parameter {len(names)} (group {number}, shape {tuple(p.shape)})"
                names.append(repr(given[i]) if given else plain)
        return names

    def _theta(self, param: Tensor) -> Tensor:
        """θ in at least float32: the parameter itself, or the master of a bfloat16 one."""
        if param.dtype != torch.bfloat16:
            return param
        return self._variable(param, "master", param)

    def _variable(self, param: Tensor, name: str, start: Tensor | None) -> Tensor:
        """A variable of the chain kept beside `param`: starts as a copy of `start`, or as zero."""
        state = self.state[param]
        if name not in state:
            dtype = torch.float32 if param.dtype == torch.bfloat16 else param.dtype
            source = param if start is None else start
            value = source.detach().to(dtype, copy=True, memory_format=torch.preserve_format)
            state[name] = value.zero_() if start is None else value
        value = state[name]
        assert isinstance(value, Tensor)
        return value

    @torch.no_grad()
    def _move(
        self,
        rule: Rule,
        group: Group,
        params: list[Tensor],
        moved: Sequence[Sequence[Tensor]],
        read: Sequence[Sequence[Tensor]],
        coefficients: Sequence[float],
        *,
        noisy: bool,
        stream: int = 0,
        inner: int = 0,
    ) -> None:
        """Apply `rule`, whose first moved variable is θ, and show the new θ to the model."""
        index = self._index()
        slots = tuple(slot(index[p], p) for p in params)
        schedule = step_schedule(group["seed"], group["step"], stream, inner) if noisy else None
        fused = self._use_fused(group, params[0].device.type)
        advance(rule, moved, read, coefficients, schedule, slots, fused=fused)
        self._publish(params)

    def _publish(self, params: list[Tensor]) -> None:
        """Round float32 masters into their bfloat16 parameters."""
        low = [p for p in params if p.dtype == torch.bfloat16]
        if low:
            torch._foreach_copy_(low, [self._theta(p) for p in low])

    def _gradients(self, params: list[Tensor]) -> list[Tensor]:
        grads = [p.grad for p in params if p.grad is not None]
        return [g.float() if g.dtype == torch.bfloat16 else g for g in grads]

    def _use_fused(self, group: Group, device_type: str) -> bool:
        """Whether this step is compiled; for "auto", a function of model size and step alone."""
        if group["fused"] == "auto":
            size = sum(p.numel() for g in self.param_groups for p in g["params"])
            if size < SMALL_MODEL or size * group["step"] < WORTH_COMPILING:
                return False
        return bool(group["fused"]) and compiled.available(device_type)

    @contextmanager
    def _restored_on_error(self, params: list[Tensor]) -> Iterator[list[Tensor]]:
        """Yield copies of θ; if the body raises, put them back, so that no perturbation stays."""
        thetas = [self._theta(p) for p in params]
        copies = [theta.detach().clone() for theta in thetas]
        try:
            yield copies
        except BaseException:
            self._restore(params, copies)
            raise

    @torch.no_grad()
    def _restore(self, params: list[Tensor], copies: list[Tensor]) -> None:
        torch._foreach_copy_([self._theta(p) for p in params], copies)
        self._publish(params)

    def _refuse_inside_guide(self, what: str) -> None:
        if self._inside_guide:
            raise StateError(
                f"{what} inside `with sampler.guide():` would mix θ and θ_a; leave the block first"
            )

    def explain(self) -> Explanation:
        """Sizes of drift, coupling and noise, the stability margin and the implied target."""
        return explain(self)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers; `load_state_dict` continues the chain bit for bit."""
        self._refuse_inside_guide("state_dict()")
        if self._watch:
            self._watch.report()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave, in the precision in which it was saved."""
        self._refuse_inside_guide("load_state_dict()")
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=False):
            missing = sorted(set(group) - set(saved) - {"params", "param_names"})
            if missing:
                raise ConfigError(
                    f"state_dict must come from {type(self).__name__}, but lacks {missing}; "
                    f"it was saved by another optimizer"
                )
            foreign = sorted((set(saved) - set(group)) & _OWN_ENTRIES)
            if foreign:
                raise ConfigError(
                    f"state_dict must come from {type(self).__name__}, which has no {foreign}; "
                    f"load it into a sampler of the class that saved it"
                )
        super().load_state_dict(state_dict)
        # torch casts state to the parameter's dtype: that would round the float32 variables.
        params = [p for group in self.param_groups for p in group["params"]]
        order = [i for group in state_dict["param_groups"] for i in group["params"]]
        for param, i in zip(params, order, strict=True):
            for name, value in state_dict["state"].get(i, {}).items():
                self.state[param][name] = value.detach().clone().to(param.device)
        self._checked = self._watch = None


def read_once(params: Params) -> Params:
    """The parameters as a list; an empty one is mostly a generator that was read before."""
    if isinstance(params, Tensor | dict):
        return params  # torch refuses these, and says why
    found: Any = list(params)
    if not found:
        raise ConfigError(
            "params must hold at least one parameter, got none; a generator can be read only once: "
            "pass model.parameters() itself, or a list"
        )
    return found  # type: ignore[no-any-return]


def check_parameter(param: Tensor) -> None:
    """Refuse dtypes and layouts for which the law would be silently wrong."""
    if param.dtype == torch.float16:
        raise ConfigError(
            "parameters must be float32, float64 or bfloat16, got torch.float16, in which a step "
            "rounds to nothing; keep the model in float32 and use torch.autocast, or bfloat16"
        )
    if param.is_sparse or param.layout != torch.strided:
        raise ConfigError(f"parameters must be dense, got layout={param.layout}; call .to_dense()")
    if param.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise ConfigError(
            f"parameters must be float32, float64 or bfloat16, got {param.dtype}; "
            f"for a complex parameter register torch.view_as_real of it"
        )
