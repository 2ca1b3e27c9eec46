"""The same targets with posteriors (torch) and blackjax (jax)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

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
FULL_ENERGY = ("blackjax NUTS", "blackjax MCLMC")  # they take no mini-batches


def first_step(method: str, target: Target) -> float:
    """The step size that is tried first: αh of SGLD, dt·√h of the underdamped ones, 1 for MCLMC."""
    if method.endswith("SGLD"):
        return 0.1 if target.exact else 0.5
    first = {"SGHMC": 0.05, "BAOA": 0.2 if target.noisy else 1.2}
    return first.get(method.split()[-1], 1.0)


def run(target: Target, method: str, ratio: float, place: Place) -> Run:
    """Chains of about `place.steps` gradients each; the first fifth is burn-in."""
    library, _, kind = method.partition(" ")
    if method in FULL_ENERGY:
        return _nuts(target, place) if kind == "NUTS" else _mclmc(target, ratio, place)
    step = ratio / place.stiffest if kind == "SGLD" else ratio / place.stiffest**0.5
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
            loss = torch.func.vmap(lambda t, *rows: target.mean_loss(t, *rows))
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
    import jax.numpy as jnp

    prior, loglik, data = in_jax(target)
    friction = place.friction

    def estimate(theta: Any, rows: Any) -> Any:
        share = 1.0 if target.batch is None else target.num_data / target.batch
        return jax.grad(lambda t: prior(t) + share * loglik(t, *rows))(theta)

    inner = 1
    algorithm = blackjax.sgld(estimate)
    if kind == "SGHMC":
        # Momenta are drawn anew after each call: half a correlation time of the softest direction.
        inner = int(np.clip(round(1 / (friction * step)), 1, 100))
        algorithm = blackjax.sghmc(estimate, inner, alpha=friction)
    calls = place.steps // inner
    thin = max(1, calls // 2000)

    def one_call(theta: Any, key: Any) -> tuple[Any, Any]:
        first, second = jax.random.split(key)
        rows = data
        if target.batch is not None:
            chosen = jax.random.randint(second, (target.batch,), 0, target.num_data)
            rows = tuple(part[chosen] for part in data)
        return algorithm.step(first, theta, rows, step), None

    def kept(theta: Any, keys: Any) -> tuple[Any, Any]:
        theta = jax.lax.scan(one_call, theta, keys)[0]
        return theta, theta

    def chain(key: Any, start: Any) -> Any:
        count = calls // thin
        keys = jax.random.split(key, count * thin).reshape(count, thin)
        return jax.lax.scan(kept, start, keys)[1]

    keys = jax.random.split(jax.random.key(place.seed), len(place.starts))
    program = (target.name, kind, step, place.steps)
    seconds, draws = _timed(program, jax.jit(jax.vmap(chain)), keys, jnp.asarray(place.starts))
    draws = draws[:, draws.shape[1] // 5 :]
    return Run(target.observe(draws), calls * inner, seconds)


def _log_density(target: Target) -> Callable[[Any], Any]:
    prior, loglik, data = in_jax(target)
    return lambda theta: prior(theta) + loglik(theta, *data)


def _nuts(target: Target, place: Place) -> Run:
    """NUTS after window adaptation, which is not counted.

    Without data chains run one after the other: side by side each would wait for the longest
    trajectory. With data they share the reading of it.
    """
    import blackjax
    import jax
    import jax.numpy as jnp

    log_density = _log_density(target)
    starts = jnp.asarray(place.starts)
    first, second = jax.random.split(jax.random.key(place.seed))
    warm = blackjax.window_adaptation(blackjax.nuts, log_density)
    adapt = jax.jit(lambda k: warm.run(k, starts[0], num_steps=500))
    (_, parameters), _ = _once((target.name, "adapted NUTS"), lambda: adapt(first))
    algorithm = blackjax.nuts(log_density, **parameters)
    count = max(200, place.steps // 40)

    def one_step(state: Any, key: Any) -> tuple[Any, Any]:
        state, info = algorithm.step(key, state)
        return state, (state.position, info.num_integration_steps)

    def chain(key: Any, start: Any) -> Any:
        return jax.lax.scan(one_step, algorithm.init(start), jax.random.split(key, count))[1]

    keys = jax.random.split(second, len(starts))
    in_turn = lambda keys, starts: jax.lax.map(lambda given: chain(*given), (keys, starts))  # noqa: E731
    mapped = jax.jit(jax.vmap(chain) if target.data else in_turn)
    seconds, (draws, used) = _timed((target.name, "NUTS", count), mapped, keys, starts)
    gradients = int(np.sum(used)) // len(starts)
    return Run(target.observe(draws[:, count // 5 :]), gradients, seconds)


def _mclmc(target: Target, ratio: float, place: Place) -> Run:
    """MCLMC, tuned by its own adaptation, which is not counted; `ratio` times its step size."""
    import blackjax
    import jax
    import jax.numpy as jnp

    log_density = _log_density(target)
    starts = jnp.asarray(place.starts)
    first, second, third = jax.random.split(jax.random.key(place.seed), 3)
    state = blackjax.mcmc.mclmc.init(starts[0], log_density, second)
    kernel = blackjax.mcmc.mclmc.build_kernel()
    tune = blackjax.mclmc_find_L_and_step_size
    parameters = _once(
        (target.name, "adapted MCLMC"), lambda: tune(kernel, 4000, state, first, log_density)[1]
    )
    algorithm = blackjax.mclmc(
        log_density,
        L=parameters.L,
        step_size=ratio * parameters.step_size,
        inverse_mass_matrix=parameters.inverse_mass_matrix,
    )
    count = place.steps // 2  # two gradients a step
    thin = max(1, count // 2000)

    def one_step(state: Any, key: Any) -> tuple[Any, Any]:
        return algorithm.step(key, state)[0], None

    def kept(state: Any, keys: Any) -> tuple[Any, Any]:
        state = jax.lax.scan(one_step, state, keys)[0]
        return state, state.position

    def chain(key: Any, start: Any) -> Any:
        begin, rest = jax.random.split(key)
        keys = jax.random.split(rest, count // thin * thin).reshape(count // thin, thin)
        return jax.lax.scan(kept, algorithm.init(start, begin), keys)[1]

    keys = jax.random.split(third, len(starts))
    program = (target.name, "MCLMC", ratio, count)
    seconds, draws = _timed(program, jax.jit(jax.vmap(chain)), keys, starts)
    return Run(target.observe(draws[:, draws.shape[1] // 5 :]), 2 * count, seconds)


def _timed(
    key: tuple[Any, ...], function: Callable[..., Any], *arguments: Any
) -> tuple[float, Any]:
    """CPU-seconds of a call that is compiled before, and its result in NumPy."""
    import jax

    compiled = _once(key, lambda: function.lower(*arguments).compile())
    begin = time.process_time()
    result = jax.block_until_ready(compiled(*arguments))
    seconds = time.process_time() - begin
    return seconds, jax.tree.map(np.asarray, result)


_made: dict[tuple[Any, ...], Any] = {}


def _once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Programs and adaptations, each made once in a process."""
    if key not in _made:
        _made[key] = make()
    return _made[key]
