"""Run many chains at once: set them up, step them, keep their draws."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from entropy_mcmc import noise
from entropy_mcmc.chains.codegen import Call, compiled, constants
from entropy_mcmc.chains.divergence import Trace, all_finite, report_divergence
from entropy_mcmc.chains.inputs import (
    check_data,
    check_settings,
    rows_per_step,
    starting_states,
)
from entropy_mcmc.chains.parts import Chains, Method, Problem
from entropy_mcmc.chains.source import LONGEST, Keys, Source
from entropy_mcmc.errors import ConfigError, check_choice, check_count
from entropy_mcmc.samplers import SGHMC, SGLD, EntropyMCMC, Sampler, fused
from entropy_mcmc.samplers.codegen import quiet_compiler
from entropy_mcmc.samplers.entropy_mcmc import choose_rule
from entropy_mcmc.samplers.scales import scales
from entropy_mcmc.samplers.sghmc import hamiltonian
from entropy_mcmc.samplers.sgld import langevin

UNROLL = 16  # steps per compiled call
CACHE = 2**18  # bytes of a mini-batch that stay in a core's own cache
REMEMBERED = 16  # compiled problems
WORTH_COMPILING = 50_000  # steps from which compile="auto" compiles
SAMPLERS: dict[str, type[Sampler]] = {"emcmc": EntropyMCMC, "sgld": SGLD, "sghmc": SGHMC}


def run(
    energy: Callable[..., Tensor] | nn.Module,
    init: Any = None,
    *,
    steps: int,
    lr: float,
    sampler: str = "emcmc",
    chains: int | None = None,
    data: Sequence[Any] = (),
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
        init: where the chains start: one state (a tensor, an array, a number, or a dict of them),
            given to all `chains`, or, with chains=None, states with a leading dimension of chains.
            None starts from the module's own parameters.
        steps: number of steps of each chain.
        lr: learning rate for the mean loss, as for the optimizers.
        sampler: "emcmc", "sgld" or "sghmc".
        chains: number of chains.
        data: tensors or arrays of equal first dimension, handed to `energy` after theta.
        batch_size: rows drawn for each chain and step, with replacement; None takes all.
        loss: of a module: `loss(output, *targets)`.
        thin: keep every thin-th state.
        burn_in: steps before the first that may be kept.
        seed: of noise and batches; None draws one.
        compile: True, False, or "auto": from 50,000 steps on, where there is a compiler.
        settings: those of the optimizer: eta, temperature, weight_decay, momentum, guide_update, …,
            and num_data, which is the number of rows where there are data.

    Raises:
        NonFiniteError: a chain diverged; the message names the chain and the step.

    >>> draws = run(lambda t: t.square().sum() / 2, torch.zeros(3), steps=40, lr=0.1, chains=5,
    ...             num_data=1, eta=0.5, seed=0, thin=2)
    >>> draws.theta.shape, draws.guide.shape
    (torch.Size([5, 20, 3]), torch.Size([5, 20, 3]))
    """
    check_choice("sampler", sampler, tuple(SAMPLERS))
    check_choice("compile", compile, (True, False, "auto"))
    check_count("thin", thin)
    check_count("burn_in", burn_in, least=0)
    if check_count("steps", steps) <= burn_in:
        raise ConfigError(f"steps must be more than burn_in={burn_in}, got steps={steps}")
    parts = check_data(data)
    settings = check_settings(SAMPLERS[sampler], settings, parts)
    settings |= {"lr": lr, "seed": noise.check_seed(seed)}
    layout, flat = starting_states(energy, init, chains)
    problem = Problem(_functional(energy, loss), layout, parts, rows_per_step(parts, batch_size))
    device_type = flat.device.type
    wanted = steps >= WORTH_COMPILING if compile == "auto" else bool(compile)
    use = wanted and fused.available(device_type)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if use:
            stack.enter_context(quiet_compiler())
        return _sample(problem, flat, sampler, settings, range(burn_in, steps, thin), steps, use)


def _sample(
    problem: Problem,
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
    groups = _groups(problem, flat, use_compiler)
    # All chains' counters once: a copy for each group would grow with the square of the chains.
    counters = problem.layout.counters(flat.shape[0], flat.device)
    sources = [
        Source(problem, flat, method, UNROLL, use_compiler, counters, group) for group in groups
    ]
    states = [[v[group].clone() for v in variables] for group in groups]
    advance = Advance(problem, method, use_compiler)
    for start in range(0, steps, LONGEST):
        count = min(LONGEST, steps - start)
        if use_compiler:  # a shorter call would be compiled anew; what is past the end is dropped
            count = -(-count // UNROLL) * UNROLL
        keys = Keys.of(method.seed, start, count, flat.device)
        for i, group in enumerate(groups):
            keep = functools.partial(_keep, [draw[group] for draw in draws], kept)
            for first, calls in sources[i].blocks(keys, count):
                replay = functools.partial(advance.block, calls, states[i], start + first)
                states[i] = replay(keep)
                if not all_finite(states[i]):
                    report_divergence(replay, group.start, steps, settings["lr"])
    guide = problem.layout.tree(draws[1]) if sampler == "emcmc" else None
    return Chains(problem.layout.tree(draws[0]), guide)


def _groups(problem: Problem, flat: Tensor, use_compiler: bool) -> list[slice]:
    """Chains that are moved by one call: few enough for their mini-batches to stay in the cache.

    All groups have one size, so that one compilation serves them: the last may overlap the one
    before it, and computes the same chains once more.
    """
    chains = flat.shape[0]
    if not use_compiler or problem.rows == 0 or flat.device.type != "cpu":
        return [slice(0, chains)]
    size = problem.rows * sum(part[0].nbytes for part in problem.data)
    most = torch.get_num_threads() * max(1, CACHE // max(size, 1))
    count = -(-chains // most)
    each = -(-chains // count)
    return [
        slice(start, start + each) for i in range(count) for start in [min(i * each, chains - each)]
    ]


def _keep(draws: list[Tensor], kept: range, start: int, trace: Trace) -> None:
    """Copy the states that are kept from a trace (chain, step, element) that begins at `start`."""
    first = max(0, -(-(start - kept.start) // kept.step))
    if first >= len(kept):
        return
    for draw, states in zip(draws, trace, strict=False):
        chosen = states[:, kept[first] - start :: kept.step][:, : len(kept) - first]
        draw[:, first : first + chosen.shape[1]] = chosen


class Advance:
    """Several steps of a group of chains in one call, which is compiled at the first if asked for.

    All groups have the same shapes, so one compilation serves them.
    """

    def __init__(self, problem: Problem, method: Method, use_compiler: bool) -> None:
        self._problem, self._method, self._use_compiler = problem, method, use_compiler
        self._call: Call | None = None

    def block(
        self,
        calls: Sequence[Sequence[Tensor]],
        state: list[Tensor],
        start: int,
        show: Callable[[int, Trace], None],
    ) -> list[Tensor]:
        """The state after calls that begin at step `start`; `show` sees the trace of each."""
        for k, drawn in enumerate(calls):
            arguments = [*drawn, *self._problem.data, *state]
            if self._call is None:
                self._call = _advance(self._problem, self._method, arguments, self._use_compiler)
            moved = self._call(arguments)
            show(start + k * UNROLL, moved[len(state) :])
            state = list(moved[: len(state)])
        return state


def _advance(problem: Problem, method: Method, arguments: list[Tensor], use_compiler: bool) -> Call:
    """Several steps in one call.

    From draws (normals, normals, rows), data and variables to new variables, and the first two of
    them after every step, (chain, step, element).
    """

    def advance(first: Tensor, second: Tensor, rows: Tensor, *others: Tensor) -> list[Tensor]:
        data, variables = others[: len(problem.data)], list(others[len(problem.data) :])
        trace = []
        for k in range(rows.shape[0]):
            slope = problem.gradients(variables[0], rows[k], data)
            eps = (first[k], second[k]) if method.normals else None
            variables = list(method.rule([*variables, slope], eps, method.coefficients))
            trace.append(variables[:2])
        kept = [torch.stack(column, dim=1) for column in zip(*trace, strict=True)]
        return [*variables, *kept]

    if not use_compiler:
        return lambda tensors: advance(*tensors)
    # A second run of the same energy on data of the same shapes must not compile again.
    shapes = tuple((t.shape, t.stride(), t.dtype, t.device) for t in arguments)
    threads = torch.get_num_threads()
    plain = constants(problem.energy)
    key = (problem.energy, plain, problem.layout, method.rule, method.coefficients, shapes, threads)
    if key not in _compiled:
        if len(_compiled) >= REMEMBERED:
            _compiled.clear()
        _compiled[key] = compiled(
            fused.own_code(advance, method.rule), arguments, direct=plain is not None
        )
    return _compiled[key]


_compiled: dict[tuple[Any, ...], Call] = {}


def _method(sampler: str, settings: dict[str, Any]) -> Method:
    """Rule and coefficients, after the checks of the optimizer of the same name."""
    optimizer: Any = SAMPLERS[sampler]
    group = optimizer([nn.Parameter(torch.zeros(1))], **settings).param_groups[0]
    s = scales(group)
    if sampler == "emcmc":
        (rule, coefficients), normals = choose_rule(group), 2
    elif sampler == "sgld":
        rule, coefficients, normals = langevin, (s.lr, s.decay, s.noise), 1
    else:
        coefficients = (s.lr, s.decay, s.noise, group["momentum"])
        rule, normals = hamiltonian, 1
    return Method(rule, coefficients, normals if s.noise > 0 else 0, group["seed"])


def _variables(sampler: str, settings: dict[str, Any], flat: Tensor) -> list[Tensor]:
    if sampler == "sgld":
        return [flat]
    if sampler == "sghmc":
        return [flat, torch.zeros_like(flat)]
    velocities = 2 if settings.get("momentum") else 0
    return [flat, flat.clone(), *(torch.zeros_like(flat) for _ in range(velocities))]


@functools.lru_cache(maxsize=REMEMBERED)
def _functional(energy: Any, loss: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    if not isinstance(energy, nn.Module):
        function: Callable[..., Tensor] = energy
        return function
    if loss is None:
        raise ConfigError("a module needs loss=, for example torch.nn.functional.cross_entropy")

    def mean_loss(theta: Any, x: Tensor, *targets: Tensor) -> Tensor:
        return loss(functional_call(energy, theta, (x,)), *targets)

    return mean_loss
