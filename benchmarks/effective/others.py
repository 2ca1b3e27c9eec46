"""The same targets with posteriors (torch) and blackjax (jax)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from effective import linear
from effective.linear import Linear
from effective.measure import Place, Run
from effective.targets import Target, in_jax

METHODS = (
    "posteriors SGLD",
    "posteriors SGHMC",
    "posteriors BAOA",
    "blackjax SGLD",
    "blackjax SGHMC",
    "blackjax NUTS",
    "blackjax MCLMC",
)
ADAPTED = 5  # seed of adaptations, each made once
QUARTERS = 4  # of a full run
FULL_ENERGY = ("blackjax NUTS", "blackjax MCLMC")  # they take no mini-batches


def inner_steps(step: float, friction: float) -> int:
    """Of a call of blackjax's SGHMC, after which momenta are drawn anew.

    Half a correlation time of the softest direction.
    """
    return int(np.clip(round(1 / (friction * step)), 1, 100))


def step_of(method: str, ratio: float, place: Place) -> float:
    """From αh of SGLD, or dt·√h of the underdamped ones, for the stiffest direction."""
    return ratio / (place.stiffest if method.endswith("SGLD") else place.stiffest**0.5)


def linear_of(method: str, ratio: float, place: Place) -> Linear | None:
    """The rule in closed form for a quadratic energy; None for NUTS and MCLMC."""
    step, friction = step_of(method, ratio, place), place.friction
    if method in FULL_ENERGY:
        return None
    if method.endswith("SGLD"):
        return linear.langevin(step)
    if method == "blackjax SGHMC":
        return linear.refreshed_momenta(step, friction, inner_steps(step, friction))
    form = linear.baoa if method == "posteriors BAOA" else linear.euler_momenta
    return form(step, friction)


def run(target: Target, method: str, ratio: float, place: Place) -> Run:
    """Chains of about `place.steps` gradients each; the first fifth is burn-in."""
    library, _, kind = method.partition(" ")
    if method in FULL_ENERGY:
        return _nuts(target, place) if kind == "NUTS" else _mclmc(target, ratio, place)
    step = step_of(method, ratio, place)
    play = _posteriors if library == "posteriors" else _blackjax
    return play(target, kind, step, place)


def _posteriors(target: Target, kind: str, step: float, place: Place) -> Run:
    from posteriors.sgmcmc import baoa, sghmc, sgld

    torch.manual_seed(place.seed)
    friction, steps, number = place.friction, place.steps, len(place.starts)

    def log_posterior(theta: torch.Tensor, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if not target.data:
            value = torch.func.vmap(target.prior)(theta).sum()
        elif target.batch is None:
            value = torch.func.vmap(target.log_density)(theta).sum()
        else:
            loss = torch.func.vmap(target.mean_loss)
            value = -target.num_data * loss(theta, *(part[batch] for part in target.data)).sum()
        return value, torch.empty(0)

    build: Callable[..., Any] = {
        "SGLD": functools.partial(sgld.build, lr=step),
        "SGHMC": functools.partial(sghmc.build, lr=step, alpha=friction),
        "BAOA": functools.partial(baoa.build, lr=step, alpha=friction),
    }[kind]
    transform = build(log_posterior)
    state = transform.init(torch.as_tensor(place.starts).clone())
    kept = []
    begin = time.process_time()
    for i in range(steps):
        batch = None
        if target.batch is not None:
            batch = torch.randint(target.num_data, (number, target.batch))
        state = transform.update(state, batch, inplace=False)
        state = state[0] if type(state) is tuple else state  # newer versions return (state, aux)
        if i >= steps // 5 and i % place.thin == 0:
            kept.append(state.params.clone())
    seconds = time.process_time() - begin
    return Run(target.observe(torch.stack(kept, 1).detach().numpy()), steps, seconds)


def _blackjax(target: Target, kind: str, step: float, place: Place) -> Run:
    import blackjax
    import jax

    prior, loglik, data = in_jax(target)
    friction = place.friction
    share = 1.0 if target.batch is None else target.num_data / target.batch
    inner = inner_steps(step, friction) if kind == "SGHMC" else 1

    def estimate(theta: Any, rows: Any) -> Any:
        return jax.grad(lambda t: prior(t) + share * loglik(t, *rows))(theta)

    algorithm = blackjax.sgld(estimate)
    if kind == "SGHMC":
        algorithm = blackjax.sghmc(estimate, inner, alpha=friction)

    def one_call(theta: Any, key: Any, step: Any, data: Any) -> Any:
        first, second = jax.random.split(key)
        if target.batch is not None:
            chosen = jax.random.randint(second, (target.batch,), 0, target.num_data)
            data = tuple(part[chosen] for part in data)
        return algorithm.step(first, theta, data, step)

    program = _Program((target.name, kind), one_call, lambda theta: theta, inner)
    return program.run(target, place, step, place.starts, data)


@dataclass(frozen=True)
class _Program:
    """Compiled chains, a quarter of a full run at a time: pilots need no program of their own.

    Attributes:
        name: Of what is compiled once.
        one_call: (state, key, step size, data) → state.
        shown: State → position.
        gradients: Of a call.
    """

    name: tuple[str, str]
    one_call: Callable[..., Any]
    shown: Callable[[Any], Any]
    gradients: int

    def run(self, target: Target, place: Place, step: float, state: Any, data: Any) -> Run:
        import jax
        import jax.numpy as jnp

        full, number = (place.full or place.steps) // self.gradients, len(place.starts)
        thin = place.thinned(full)
        count = max(1, full // (QUARTERS * thin))
        quarters = max(1, round(QUARTERS * place.steps / (place.full or place.steps)))

        def chain(state: Any, keys: Any, step: Any, data: Any) -> Any:
            def one(state: Any, key: Any) -> tuple[Any, Any]:
                return self.one_call(state, key, step, data), None

            def kept(state: Any, keys: Any) -> tuple[Any, Any]:
                state = jax.lax.scan(one, state, keys)[0]
                return state, self.shown(state)

            return jax.lax.scan(kept, state, keys)

        mapped = jax.jit(jax.vmap(chain, in_axes=(0, 0, None, None)))
        key = (*self.name, self.gradients, number, thin, count)
        state = jax.tree.map(jnp.asarray, state)
        seconds, shown = 0.0, []
        for quarter in jax.random.split(jax.random.key(place.seed), quarters):
            keys = jax.random.split(quarter, (number, count, thin))
            taken, (state, draws) = _timed(key, mapped, state, keys, jnp.float32(step), data)
            seconds, shown = seconds + taken, [*shown, np.asarray(draws)]
        draws = np.concatenate(shown, axis=1)
        gradients = quarters * count * thin * self.gradients
        return Run(target.observe(draws[:, draws.shape[1] // 5 :]), gradients, seconds)


def _log_density(target: Target) -> Callable[..., Any]:
    prior, loglik, _ = in_jax(target)
    return lambda theta, data: prior(theta) + loglik(theta, *data)


def _nuts(target: Target, place: Place) -> Run:
    """NUTS after window adaptation, which is not counted.

    Without data chains run one after the other: side by side each would wait for the longest
    trajectory. With data they share the reading of it.
    """
    import blackjax
    import jax
    import jax.numpy as jnp

    data = in_jax(target)[2]
    log_density = functools.partial(_log_density(target), data=data)
    starts = jnp.asarray(place.starts)
    first = jax.random.key(ADAPTED)
    second = jax.random.key(place.seed)
    warm = blackjax.window_adaptation(blackjax.nuts, log_density)
    adapt = jax.jit(lambda k: warm.run(k, starts[0], num_steps=500))
    (_, parameters), _ = _once((target.name, "adapted NUTS"), lambda: adapt(first))
    algorithm = blackjax.nuts(log_density, **parameters)
    count = max(place.transitions, place.steps // 40)

    def one_step(state: Any, key: Any) -> tuple[Any, Any]:
        state, info = algorithm.step(key, state)
        return state, (state.position, info.num_integration_steps)

    def chain(key: Any, start: Any) -> Any:
        return jax.lax.scan(one_step, algorithm.init(start), jax.random.split(key, count))[1]

    keys = jax.random.split(second, len(starts))
    in_turn = lambda keys, starts: jax.lax.map(lambda given: chain(*given), (keys, starts))  # noqa: E731
    mapped = jax.jit(jax.vmap(chain) if target.data else in_turn)
    seconds, (draws, used) = _timed((target.name, "NUTS", count, len(starts)), mapped, keys, starts)
    draws = np.asarray(draws)
    gradients = int(np.sum(used)) // len(starts)
    return Run(target.observe(draws[:, count // 5 :]), gradients, seconds)


def _mclmc(target: Target, ratio: float, place: Place) -> Run:
    """MCLMC, tuned by its own adaptation, which is not counted; `ratio` times its step size."""
    import blackjax
    import jax
    import jax.numpy as jnp

    data, density = in_jax(target)[2], _log_density(target)
    log_density = functools.partial(density, data=data)
    starts = jnp.asarray(place.starts)
    first, second, third = jax.random.split(jax.random.key(ADAPTED), 3)
    state = blackjax.mcmc.mclmc.init(starts[0], log_density, second)
    kernel = blackjax.mcmc.mclmc.build_kernel()
    tune = blackjax.mclmc_find_L_and_step_size
    tuned = _once(
        (target.name, "adapted MCLMC"), lambda: tune(kernel, 4000, state, first, log_density)[1]
    )

    def one_call(state: Any, key: Any, step: Any, data: Any) -> Any:
        algorithm = blackjax.mclmc(
            functools.partial(density, data=data),
            L=tuned.L,
            step_size=step,
            inverse_mass_matrix=tuned.inverse_mass_matrix,
        )
        return algorithm.step(key, state)[0]

    begin = jax.vmap(lambda start, key: blackjax.mcmc.mclmc.init(start, log_density, key))
    states = begin(starts, jax.random.split(third, len(starts)))
    program = _Program((target.name, "MCLMC"), one_call, lambda state: state.position, 2)
    return program.run(target, place, ratio * float(tuned.step_size), states, data)


def _timed(
    key: tuple[Any, ...], function: Callable[..., Any], *arguments: Any
) -> tuple[float, Any]:
    """CPU-seconds of a call that is compiled before, and its result."""
    import jax

    compiled = _once(key, lambda: function.lower(*arguments).compile())
    begin = time.process_time()
    result = jax.block_until_ready(compiled(*arguments))
    seconds = time.process_time() - begin
    return seconds, result


_made: dict[tuple[Any, ...], Any] = {}


def _once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Programs and adaptations, each made once in a process."""
    if key not in _made:
        _made[key] = make()
    return _made[key]
