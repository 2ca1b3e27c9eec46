"""Many independent chains of a small model at once, several steps per compiled call.

`run` moves all chains of a functional energy or of a small `nn.Module` together (`torch.func`,
vmap), with the update rules of `samplers` and the noise of `noise`.

Noise addresses: parameter i of chain c, in a model of P parameter tensors, has the parameter index
c·P + i. So two chains never share numbers (chains · P ≤ 2^22, checked), and chain 0 is the chain of
the optimizer of the same seed. Mini-batches are drawn with replacement, each chain its own, from
stream 255 at (chain, position in the batch).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from entropy_mcmc import noise
from entropy_mcmc.errors import ConfigError, check_choice, check_count
from entropy_mcmc.samplers import SGHMC, SGLD, EntropyMCMC, Sampler
from entropy_mcmc.samplers import fused as compiled
from entropy_mcmc.samplers.engine import Rule
from entropy_mcmc.samplers.entropy_mcmc import choose_rule
from entropy_mcmc.samplers.scales import scales
from entropy_mcmc.samplers.sghmc import hamiltonian
from entropy_mcmc.samplers.sgld import langevin

Tree = Tensor | dict[str, Tensor]
Step = Callable[..., tuple[Tensor, ...]]

BATCH_STREAM = 255
BLOCK = 2**21  # normals drawn at a time
UNROLL = 8  # steps per compiled call
WORTH_COMPILING = 50_000  # steps from which compile="auto" compiles


@dataclass(frozen=True)
class Chains:
    """Draws as (chain, draw, …): a tensor, or a dict of them when the chain has several.

    `guide` is None for samplers without one.
    """

    theta: Tree
    guide: Tree | None

    def to_arviz(self) -> Any:
        """An xarray Dataset with dimensions (chain, draw, …), as arviz and arviz-stats read it."""
        try:
            import xarray  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ConfigError(
                "to_arviz needs xarray, which is not installed; pip install arviz-stats[xarray]"
            ) from error
        guides = {} if self.guide is None else _named(self.guide, "guide")
        variables = {
            name: (
                ("chain", "draw", *(f"{name}_{i}" for i in range(value.ndim - 2))),
                value.numpy(),
            )
            for name, value in (_named(self.theta, "theta") | guides).items()
        }
        return xarray.Dataset(variables)


def run(
    energy: Callable[..., Tensor] | nn.Module,
    init: Tree | None = None,
    *,
    steps: int,
    lr: float,
    sampler: str = "emcmc",
    chains: int | None = None,
    data: Sequence[Tensor] = (),
    batch_size: int | None = None,
    loss: Callable[..., Tensor] | None = None,
    thin: int = 1,
    burn_in: int = 0,
    seed: int | None = None,
    compile: bool | str = "auto",
    **settings: Any,
) -> Chains:
    """Run independent chains and return every `thin`-th state after `burn_in` steps.

    Args:
        energy: `energy(theta, *batch)`, the mean loss of one chain (with num_data=1 and no data,
            the energy U itself), or a module, with `loss(module(x), y)` as its mean loss.
        init: where the chains start: one state, given to all `chains`, or, with chains=None, states
            with a leading dimension of chains. None starts from the module's own parameters.
        steps: number of steps of each chain.
        lr: learning rate for the mean loss, as for the optimizers.
        sampler: "emcmc", "sgld" or "sghmc".
        chains: number of chains.
        data: tensors of equal first dimension, handed to `energy` after theta.
        batch_size: rows drawn for each chain and step, with replacement; None takes all.
        loss: of a module: `loss(output, *targets)`.
        thin: keep every thin-th state.
        burn_in: steps before the first that may be kept.
        seed: of noise and batches; None draws one.
        compile: True, False, or "auto": from 50,000 steps on, where there is a compiler.
        settings: those of the optimizer: num_data, eta, temperature, weight_decay, momentum,
            guide_update, …

    >>> draws = run(lambda t: t.square().sum() / 2, torch.zeros(3), steps=40, lr=0.1, chains=5,
    ...             num_data=1, eta=0.5, seed=0, thin=2)
    >>> draws.theta.shape, draws.guide.shape
    (torch.Size([5, 20, 3]), torch.Size([5, 20, 3]))
    """
    check_choice("sampler", sampler, ("emcmc", "sgld", "sghmc"))
    check_choice("compile", compile, (True, False, "auto"))
    check_count("thin", thin)
    check_count("burn_in", burn_in, least=0)
    if check_count("steps", steps) <= burn_in:
        raise ConfigError(f"steps must be more than burn_in={burn_in}, got steps={steps}")
    settings |= {"lr": lr, "seed": noise.check_seed(seed)}
    layout, flat = _start(energy, init, chains)
    problem = _Problem(_functional(energy, loss), layout, tuple(data), _row_count(data, batch_size))
    device_type = flat.device.type
    wanted = steps >= WORTH_COMPILING if compile == "auto" else bool(compile)
    use = wanted and compiled.available(device_type)
    return _sample(problem, flat, sampler, settings, range(burn_in, steps, thin), steps, use)


@dataclass(frozen=True)
class _Layout:
    """How the parameters of one chain lie in its row; no names means a single bare tensor."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    def tree(self, flat: Tensor) -> Tree:
        """Split the last dimension of `flat` into the parameters."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes], dim=-1)
        lead = flat.shape[:-1]
        values = [p.reshape(*lead, *s) for p, s in zip(parts, self.shapes, strict=True)]
        return dict(zip(self.names, values, strict=True)) if self.names else values[0]

    def counters(self, chains: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Noise counters of all elements: (1, elements) and (chains, elements)."""
        number = len(self.shapes)
        if chains * number > noise.PARAMETER_LIMIT:
            raise ConfigError(
                f"chains times parameter tensors must be at most 2**22, got {chains} · {number}; "
                f"run fewer chains, with another seed for the rest"
            )
        sizes = [shape.numel() for shape in self.shapes]
        x0 = torch.cat([torch.arange(n, dtype=torch.int32) for n in sizes])
        own = torch.arange(number).repeat_interleave(torch.tensor(sizes))
        x1 = (torch.arange(chains)[:, None] * number + own) * 2**10
        return x0[None].to(device), x1.to(torch.int32).to(device)


@dataclass(frozen=True)
class _Problem:
    """The mean loss of one chain, and where its batches come from."""

    energy: Callable[..., Tensor]
    layout: _Layout
    data: tuple[Tensor, ...]
    rows: int  # drawn per step; 0 takes all data

    def gradients(self, theta: Tensor, rows: Tensor) -> Tensor:
        """Gradients of all chains, (chain, element); `rows` is (chain, row)."""
        if self.rows == 0:
            slopes: Tensor = vmap(grad(self._on_all))(theta)
        else:
            slopes = vmap(grad(self._on_rows))(theta, rows)
        return slopes

    def _on_all(self, theta: Tensor) -> Tensor:
        return self.energy(self.layout.tree(theta), *self.data)

    def _on_rows(self, theta: Tensor, rows: Tensor) -> Tensor:
        return self.energy(self.layout.tree(theta), *(part[rows] for part in self.data))


@dataclass(frozen=True)
class _Method:
    """An update rule with its coefficients, and whether it takes noise."""

    rule: Rule
    coefficients: tuple[float, ...]
    noisy: bool
    seed: int


def _sample(
    problem: _Problem,
    flat: Tensor,
    sampler: str,
    settings: dict[str, Any],
    kept: range,
    steps: int,
    use_compiler: bool,
) -> Chains:
    method = _method(sampler, settings)
    variables = _variables(sampler, settings, flat)
    draws = [flat.new_empty(flat.shape[0], len(kept), flat.shape[1]) for _ in variables[:2]]
    source = _Source(problem, flat, method, use_compiler)
    advance = _advance(problem, method, use_compiler)
    for start in range(0, steps, source.block):
        count = min(source.block, steps - start)
        first, second, rows = source.draw(start, count)
        for k in range(0, count, UNROLL):
            part = slice(k, min(k + UNROLL, count))
            variables, trace = advance(variables, first[part], second[part], rows[part])
            _keep(draws, trace, kept, start + k)
    guide = problem.layout.tree(draws[1]) if sampler == "emcmc" else None
    return Chains(problem.layout.tree(draws[0]), guide)


def _keep(draws: list[Tensor], trace: list[list[Tensor]], kept: range, start: int) -> None:
    for offset, state in enumerate(trace):
        if start + offset in kept:
            for draw, value in zip(draws, state, strict=False):
                draw[:, kept.index(start + offset)] = value


def _advance(problem: _Problem, method: _Method, use_compiler: bool) -> Any:
    """Several steps in one call: new variables, and the first two of them after every step."""

    def advance(
        variables: list[Tensor], first: Tensor, second: Tensor, rows: Tensor
    ) -> tuple[list[Tensor], list[list[Tensor]]]:
        trace = []
        for k in range(rows.shape[0]):
            slope = problem.gradients(variables[0], rows[k])
            eps = (first[k], second[k]) if method.noisy else None
            variables = list(method.rule([*variables, slope], eps, method.coefficients))
            trace.append(variables[:2])
        return variables, trace

    if not use_compiler:
        return torch.no_grad()(advance)
    return torch.no_grad()(torch.compile(advance, dynamic=False, fullgraph=True))


class _Source:
    """Normals and rows of a block of steps, drawn together."""

    def __init__(
        self, problem: _Problem, flat: Tensor, method: _Method, use_compiler: bool
    ) -> None:
        self.method, self.problem, self.like = method, problem, flat
        self.x0, self.x1 = problem.layout.counters(flat.shape[0], flat.device)
        self.block = max(UNROLL, min(512, BLOCK // max(flat.numel(), 1)) // UNROLL * UNROLL)
        pair = noise.compiled_normal_pair if use_compiler else noise.normal_pair
        self._pair = torch.compile(pair, dynamic=True) if use_compiler else pair

    def draw(self, start: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Two normals per (step, chain, element), and rows per (step, chain, row)."""
        rows = self._rows(start, count)
        if not self.method.noisy:
            empty = self.like.new_empty(count, 0)
            return empty, empty, rows
        words = self._words(start, count, 0)
        first, second = self._pair(words, self.x0, self.x1)
        return first.to(self.like.dtype), second.to(self.like.dtype), rows

    def _words(self, start: int, count: int, stream: int) -> list[Tensor]:
        device = self.like.device
        words = noise.step_schedules(self.method.seed, start, count, stream, device=device)
        return list(words[:, :, None, None].unbind())

    def _rows(self, start: int, count: int) -> Tensor:
        number, chains, device = self.problem.rows, self.like.shape[0], self.like.device
        if number == 0:
            return torch.empty(count, chains, 0, dtype=torch.int64, device=device)
        x0 = torch.arange(number, dtype=torch.int32, device=device)[None]
        x1 = (torch.arange(chains, device=device) * 2**10).to(torch.int32)[:, None]
        words = self._words(start, count, BATCH_STREAM)
        bits, _ = noise.threefry2x32(words, x0, x1, noise.ELEMENT_ROUNDS)
        return ((bits.to(torch.int64) & 0xFFFFFFFF) * len(self.problem.data[0])) >> 32


def _method(sampler: str, settings: dict[str, Any]) -> _Method:
    """Rule and coefficients, after the checks of the optimizer of the same name."""
    kinds: dict[str, type[Sampler]] = {"emcmc": EntropyMCMC, "sgld": SGLD, "sghmc": SGHMC}
    optimizer: Any = kinds[sampler]
    group = optimizer([nn.Parameter(torch.zeros(1))], **settings).param_groups[0]
    s = scales(group)
    if sampler == "emcmc":
        rule, coefficients = choose_rule(group)
    elif sampler == "sgld":
        rule, coefficients = langevin, (s.lr, s.decay, s.noise)
    else:
        rule, coefficients = hamiltonian, (s.lr, s.decay, s.noise, group["momentum"])
    return _Method(rule, coefficients, s.noise > 0, group["seed"])


def _variables(sampler: str, settings: dict[str, Any], flat: Tensor) -> list[Tensor]:
    if sampler == "sgld":
        return [flat]
    if sampler == "sghmc":
        return [flat, torch.zeros_like(flat)]
    velocities = 2 if settings.get("momentum") else 0
    return [flat, flat.clone(), *(torch.zeros_like(flat) for _ in range(velocities))]


def _start(energy: Any, init: Tree | None, chains: int | None) -> tuple[_Layout, Tensor]:
    """Layout and rows of the starting states."""
    if init is None:
        if not isinstance(energy, nn.Module):
            raise ConfigError("init must be a tensor or a dict of tensors, got init=None")
        init = {name: value.detach() for name, value in energy.named_parameters()}
        chains = 1 if chains is None else chains
    values = list(init.values()) if isinstance(init, Mapping) else [init]
    if chains is not None:
        count = check_count("chains", chains)
        values = [v.detach().expand(count, *v.shape) for v in values]
    names = tuple(init) if isinstance(init, Mapping) else ()
    layout = _Layout(names, tuple(v.shape[1:] for v in values))
    return layout, torch.cat([v.reshape(v.shape[0], -1) for v in values], dim=1)


def _functional(energy: Any, loss: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    if not isinstance(energy, nn.Module):
        function: Callable[..., Tensor] = energy
        return function
    if loss is None:
        raise ConfigError("a module needs loss=, for example torch.nn.functional.cross_entropy")

    def mean_loss(theta: Any, x: Tensor, *targets: Tensor) -> Tensor:
        return loss(functional_call(energy, theta, (x,)), *targets)

    return mean_loss


def _row_count(data: Sequence[Tensor], batch_size: int | None) -> int:
    if batch_size is None:
        return 0
    if not data or len({len(part) for part in data}) != 1:
        sizes = [len(part) for part in data]
        raise ConfigError(f"batch_size needs data of equal first dimensions, got sizes {sizes}")
    return check_count("batch_size", batch_size)


def _named(tree: Tree, name: str) -> dict[str, Tensor]:
    if isinstance(tree, Tensor):
        return {name: tree}
    return tree if name == "theta" else {f"{name}_{key}": value for key, value in tree.items()}
