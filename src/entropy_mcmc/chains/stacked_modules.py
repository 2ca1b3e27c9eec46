"""K modules of one architecture trained at once: parameters and buffers stacked, one forward pass.

`StackedModules` computes the outputs of K modules by batched products where it knows all layers
(`stacked_layers.py`), else by `torch.func.vmap`, batch norm in train mode included: every module
keeps its own running statistics. `StackedSampler` moves them by one call of
a sampler's rule, with the noise that K optimizers of the same seeds would draw. So chain k is the
chain of module k alone, but for the rounding of batched products: relative differences of 1e-6 a
step, which grow as any rounding does.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from entropy_mcmc import noise, stacked_layers
from entropy_mcmc.chains.stack import Stack
from entropy_mcmc.chains.stack_noise import StackNoise
from entropy_mcmc.errors import ConfigError, NonFiniteError
from entropy_mcmc.samplers import Sampler
from entropy_mcmc.samplers.coupled import GUIDE_STREAM
from entropy_mcmc.samplers.kernel.compiled import wanted
from entropy_mcmc.samplers.rule import Eps, Update

AGREEMENT = 1e-4  # relative difference of outputs above which a stack is not the modules' own


class StackedModules:
    """The modules as one function from inputs (K, rows, …) to outputs (K, rows, …).

    `base` is the module, without values, that is called. `parameters` and `buffers` hold tensors
    with a leading dimension K by name; those that do not require a gradient are `frozen`.
    `write_back` copies them into the modules.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        check_alike(modules)
        self._modules = list(modules)
        self.base = copy.deepcopy(modules[0]).to("meta")
        parameters = [dict(module.named_parameters()) for module in modules]
        trained = [name for name, value in parameters[0].items() if value.requires_grad]
        stacked = {k: torch.stack([p[k].detach() for p in parameters]) for k in parameters[0]}
        self.parameters = {name: stacked[name].requires_grad_() for name in trained}
        self.frozen = {name: value for name, value in stacked.items() if name not in trained}
        held = [dict(module.named_buffers()) for module in modules]
        self.buffers = {k: torch.stack([b[k].detach() for b in held]) for k in held[0]}

    def __len__(self) -> int:
        return len(self._modules)

    def __call__(self, *inputs: Tensor) -> Any:
        """Outputs of all modules; `inputs` have a leading dimension K."""
        state = {**self.parameters, **self.frozen, **self.buffers}
        layers = stacked_layers.known_layers(self.base) if len(inputs) == 1 else None
        known = layers is not None and stacked_layers.has_all(state, layers)
        if layers is not None and known and stacked_layers.takes(layers, inputs[0]):
            return stacked_layers.run(layers, inputs[0], state)
        return vmap(self._one, randomness="error")(state, inputs)

    def _one(self, state: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Any:
        return functional_call(self.base, state, inputs)

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy parameters and buffers into the modules."""
        for k, module in enumerate(self._modules):
            held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            for name, value in {**self.parameters, **self.buffers}.items():
                held[name].copy_(value[k])


class StackedSampler:
    """A sampler of all modules of a stack: one group of hyper-parameters, a seed for each module.

    `group` may be changed between steps, as a schedule does with a parameter group. With fused=True
    the noise is drawn by a compiled kernel; "auto" compiles it when that has paid for itself.
    """

    def __init__(
        self, stacked: StackedModules, kind: type[Sampler], seeds: Sequence[int], **settings: Any
    ) -> None:
        if len(seeds) != len(stacked):
            raise ConfigError(
                f"seeds must be one for each of the {len(stacked)} modules, got {len(seeds)}"
            )
        self.seeds = [noise.check_seed(seed) for seed in seeds]
        self._stack = Stack(list(stacked.parameters.values()), kind, **settings)
        stacked.parameters = dict(zip(stacked.parameters, self._stack.layers, strict=True))
        self._places = tuple((i, layer[0].numel()) for i, layer in enumerate(self._stack.layers))
        self._noise = StackNoise(self.seeds, self._stack.flat.device)

    @property
    def group(self) -> dict[str, Any]:
        """Hyper-parameters of the next step, by name."""
        return self._stack.group

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        self._stack.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Move all modules by their gradients."""
        step, every = self.group["step"], self.group["check_every"]
        update = self._stack.update(self.group["lr"])
        self._stack.step(update, self._eps(update, step))
        if every and (step + 1) % every == 0:
            self.check_finite()

    def check_finite(self) -> None:
        """Raise if a module's parameters became NaN or infinite, with its number."""
        if bool(self._stack.flat.isfinite().all()):
            return
        for k in range(len(self._stack)):
            if not all(bool(layer[k].isfinite().all()) for layer in self._stack.layers):
                raise NonFiniteError(
                    f"module {k} of the stack became NaN or infinite before step "
                    f"{self.group['step']}; use a smaller lr, got lr={self.group['lr']}"
                )

    def copy(self, variable: str) -> list[Tensor]:
        """The stacked parameters of a variable, "theta" or "guide" for example."""
        draw = self._stack.guide_draw if variable == "guide" else None
        if draw is None:
            return self._stack.copy(variable)
        eps = self._normals(self.group["step"], GUIDE_STREAM)
        return self._stack.shaped(draw([self._stack.flat.detach()], eps).guide)

    def _eps(self, update: Update, step: int) -> Eps:
        """What the rule takes: the normals of this step, and of the next if it averages noise."""
        if not update.normals:
            return None
        if update.pairs == 1:
            return self._normals(step)
        return self._normals(step), self._normals(step + 1)

    def _normals(self, step: int, stream: int = 0) -> tuple[Tensor, Tensor]:
        """The noise of each module's own seed, laid out as the stack is."""
        flat = self._stack.flat
        use = wanted(self.group["fused"], flat.numel(), step, flat.device.type)
        drawn = self._noise.normals(step, self._places, compiled=use, stream=stream)
        return self._flatten(drawn[0]), self._flatten(drawn[1])

    def _flatten(self, rows: Tensor) -> Tensor:
        """(module, element) → layer after layer, as the stack holds them."""
        sizes = [size for _, size in self._places]
        parts = torch.split(rows.to(self._stack.flat.dtype), sizes, dim=1)
        return torch.cat([part.reshape(-1) for part in parts])


def stack_or_explain(modules: Sequence[nn.Module], *example: Tensor) -> StackedModules | None:
    """The modules as a stack; None, with a notice that says why, where they cannot be stacked.

    `example` are inputs (K, rows, …) on which the stack must give the outputs of the modules.
    """
    try:
        _check_outputs(copy.deepcopy(list(modules)), example)
    except (ConfigError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        warnings.warn(
            f"the {len(modules)} modules are not stacked and run one after the other, slower but "
            f"with the same result: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return StackedModules(modules)


@torch.no_grad()
def _check_outputs(modules: Sequence[nn.Module], example: Sequence[Tensor]) -> None:
    """Refuse modules, which this changes, whose stack gives other outputs than they do."""
    outputs = StackedModules(modules)(*example)
    alone = [module(*(x[k] for x in example)) for k, module in enumerate(modules)]
    if not torch.allclose(outputs, torch.stack(alone), rtol=AGREEMENT, atol=AGREEMENT):
        raise ConfigError("their stack gives other outputs than the modules alone")


def check_alike(modules: Sequence[nn.Module]) -> None:
    """Refuse modules whose classes, parameters, buffers or modes differ."""
    if not modules:
        raise ConfigError("modules must hold at least one module, got none")
    first = _form(modules[0])
    for k, module in enumerate(modules):
        if _form(module) != first:
            raise ConfigError(
                f"modules of a stack must have one architecture, dtype, device and mode, but "
                f"module {k} differs from module 0; build them alike"
            )


def _form(module: nn.Module) -> tuple[Any, ...]:
    kinds = tuple((name, type(part), part.training) for name, part in module.named_modules())
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return kinds, tuple((n, t.shape, t.dtype, t.device, t.requires_grad) for n, t in tensors)
