"""Run many chains at once: set them up, step them, keep their draws."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc import noise
from entropy_mcmc.chains.compilation import constants
from entropy_mcmc.chains.divergence import Trace, all_finite, report_divergence
from entropy_mcmc.chains.draws import Chains
from entropy_mcmc.chains.energy import Energy, as_function
from entropy_mcmc.chains.inputs import (
    check_data,
    check_settings,
    check_shared,
    rows_per_step,
    starting_states,
)
from entropy_mcmc.chains.noise_and_batches import LONGEST, Keys, NoiseAndBatches, drawn_guides
from entropy_mcmc.chains.stack import Method, samplers
from entropy_mcmc.chains.steps import Steps
from entropy_mcmc.errors import ConfigError, check_choice, check_count
from entropy_mcmc.samplers.kernel.compiled import available
from entropy_mcmc.samplers.kernel.inductor import quiet_compiler

KEPT = ("theta", "guide")  # variables whose states are kept, where a sampler has them
UNROLL = 16  # steps per call
FEW_UNROLLED = 4  # of an energy that is compiled with guards: half of the time to compile,
MANY = 300_000  # which more time per call has used up after so many steps
CACHE = 2**18  # bytes of a mini-batch that stay in a core's own cache
# Measured: a step of a few parameters takes 600 µs, compiled 12 µs; compiling it 10 CPU-seconds,
# and compiling the noise 30 more.
WORTH_COMPILING = 20_000  # steps from which compile="auto" compiles them
WORTH_COMPILING_NOISE = 10**9  # normals from which it compiles these, too


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
    shared_batch: bool = False,
    loss: Callable[..., Tensor] | None = None,
    thin: int = 1,
    burn_in: int = 0,
    seed: int | None = None,
    compile: bool | str = "auto",
    tell: Callable[[int], Any] | None = None,
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
        sampler: name of a sampler that takes one gradient per step: "emcmc", "sgld", "sghmc", ….
        chains: number of chains.
        data: tensors or arrays of equal first dimension, handed to `energy` after theta.
        batch_size: rows drawn for each chain and step, with replacement; None takes all.
        shared_batch: give all chains of a step the same rows, which is much faster. Each chain has
            the distribution that it has with rows of its own, but the chains are not independent:
            their gradient noise is one, so that their average keeps it, and R-hat and the effective
            sample size of several chains do not see it.
        loss: of a module: `loss(output, *targets)`.
        thin: keep every thin-th state.
        burn_in: steps before the first that may be kept.
        seed: of noise and batches; None draws one.
        compile: True, False, "steps" (noise only from 10^9 normals on), or "auto": the same from
            20,000 steps on, where there is a compiler.
        tell: Called with the number of steps made since the last call, for a progress bar.
        settings: those of the optimizer: eta, temperature, momentum, integrator, replicas, …,
            and num_data, which is the number of rows where there are data.

    Raises:
        NonFiniteError: a chain diverged; the message names the chain and the step.

    >>> draws = run(lambda t: t.square().sum() / 2, torch.zeros(3), steps=40, lr=0.1, chains=5,
    ...             num_data=1, eta=0.5, seed=0, thin=2)
    >>> draws.theta.shape, draws.guide.shape
    (torch.Size([5, 20, 3]), torch.Size([5, 20, 3]))
    """
    check_choice("sampler", sampler, tuple(samplers()))
    check_choice("compile", compile, (True, False, "steps", "auto"))
    check_count("thin", thin)
    check_count("burn_in", burn_in, least=0)
    if check_count("steps", steps) <= burn_in:
        raise ConfigError(f"steps must be more than burn_in={burn_in}, got steps={steps}")
    parts = check_data(data)
    settings = check_settings(samplers()[sampler], settings, parts)
    settings |= {"lr": lr, "seed": noise.check_seed(seed)}
    layout, flat = starting_states(energy, init, chains)
    batch_rows = rows_per_step(parts, batch_size)
    sampled = Energy(as_function(energy, loss), layout, parts, batch_rows, bool(shared_batch))
    check_shared(shared_batch, batch_rows, settings.get("replicas", 1))
    device_type = flat.device.type
    wanted = steps >= WORTH_COMPILING if compile == "auto" else bool(compile)
    use = wanted and available(device_type, "compile=False")
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if use:
            stack.enter_context(quiet_compiler())
        method = Method.of(samplers()[sampler], settings)
        flat = flat.repeat_interleave(method.replicas, 0)
        noisy = use and (compile is True or steps * flat.numel() >= WORTH_COMPILING_NOISE)
        kept = range(burn_in, steps, thin)
        draws = _sample(sampled, flat, method, kept, steps, use, noisy, tell)
        return draws.by_replica(method.replicas)


def _sample(
    energy: Energy,
    flat: Tensor,
    method: Method,
    kept: range,
    steps: int,
    use_compiler: bool,
    compile_noise: bool,
    tell: Callable[[int], Any] | None,
) -> Chains:
    variables = method.begin(flat)
    names = [name for name in KEPT if name in variables._fields]
    draws = [flat.new_empty(flat.shape[0], len(kept), flat.shape[1]) for _ in names]
    groups = _groups(energy, flat, use_compiler, method.replicas)
    unroll = _unroll(energy, steps) if use_compiler else UNROLL
    # All chains' counters once: a copy for each group would grow with the square of the chains.
    counters = energy.layout.counters(flat.shape[0], flat.device)
    inputs = [
        NoiseAndBatches(energy, flat, method, unroll, compile_noise, counters, group)
        for group in groups
    ]
    states = [[v[group].clone() for v in variables] for group in groups]
    advance = Steps(energy, method, names, use_compiler)
    for start in range(0, steps, LONGEST):
        count = min(LONGEST, steps - start)
        if use_compiler:  # a shorter call would be compiled anew; what is past the end is dropped
            count = -(-count // unroll) * unroll
        keys = Keys.of(method.group["seed"], start, count, flat.device)
        for i, group in enumerate(groups):
            keep = functools.partial(_keep, [draw[group] for draw in draws], kept)
            for first, calls in inputs[i].blocks(keys, count):
                replay = functools.partial(advance.block, calls, states[i], start + first)
                states[i] = replay(keep if tell is None or i else _telling(keep, tell))
                if not all_finite(states[i]):
                    report_divergence(replay, group.start, steps, method.group["lr"])
    if method.guide_draw is not None:
        names.append("guide")
        draws.append(drawn_guides(draws[0], method, kept, counters, compile_noise))
    trees = {name: energy.layout.tree(draw) for name, draw in zip(names, draws, strict=True)}
    return Chains(trees["theta"], trees.get("guide"))


def _unroll(energy: Energy, steps: int) -> int:
    """Steps of a compiled call."""
    guarded = constants(energy.mean_loss) is None
    return min(FEW_UNROLLED, UNROLL) if guarded and steps < MANY else UNROLL


def _groups(energy: Energy, flat: Tensor, use_compiler: bool, replicas: int = 1) -> list[slice]:
    """Chains that are moved by one call: few enough for their mini-batches to stay in the cache.

    The replicas of a chain, which are rows too, are moved together.

    All groups have one size, so that one compilation serves them: the last may overlap the one
    before it, and computes the same chains once more.
    """
    chains = flat.shape[0]
    alone = energy.batch_rows and not energy.shared
    if not use_compiler or not alone or flat.device.type != "cpu":
        return [slice(0, chains)]
    size = energy.batch_rows * sum(part[0].nbytes for part in energy.data)
    most = torch.get_num_threads() * max(1, CACHE // max(size, 1))
    count = -(-chains // most)
    each = -(-chains // (count * replicas)) * replicas
    count = -(-chains // each)
    return [
        slice(start, start + each) for i in range(count) for start in [min(i * each, chains - each)]
    ]


def _telling(keep: Callable[..., None], tell: Callable[[int], Any]) -> Callable[..., None]:
    """`keep`, which also tells the number of steps of each call."""

    def both(start: int, trace: Trace) -> None:
        keep(start, trace)
        tell(trace[0].shape[1])

    return both


def _keep(draws: list[Tensor], kept: range, start: int, trace: Trace) -> None:
    """Copy the states that are kept from a trace (chain, step, element) that begins at `start`."""
    first = max(0, -(-(start - kept.start) // kept.step))
    if first >= len(kept):
        return
    for draw, states in zip(draws, trace, strict=True):
        due = states[:, kept[first] - start :: kept.step][:, : len(kept) - first]
        draw[:, first : first + due.shape[1]] = due
