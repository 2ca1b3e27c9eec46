"""The same targets with posteriors (torch) and blackjax (jax)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from effective.measure import Run
from effective.targets import Target, in_jax

# Step sizes that are tried: αh for SGLD, dt·√h for the underdamped ones.
METHODS: dict[str, tuple[float, ...]] = {
    "posteriors SGLD": (0.05, 0.1, 0.2),
    "posteriors SGHMC": (0.1, 0.2, 0.4),
    "posteriors BAOA": (0.3, 0.6, 1.0),
    "blackjax SGLD": (0.05, 0.1, 0.2),
    "blackjax SGHMC": (0.1, 0.2, 0.4),
    "blackjax NUTS": (0.0,),
    "blackjax MCLMC": (0.0,),
}


def run(
    target: Target,
    method: str,
    ratio: float,
    stiffest: float,
    condition: float,
    steps: int,
    number: int,
    seed: int,
) -> Run:
    """Chains of about `steps` gradients each; the first fifth is burn-in."""
    library, _, kind = method.partition(" ")
    friction = 2 * (stiffest / condition) ** 0.5  # critical for the softest direction
    if kind in ("NUTS", "MCLMC"):
        return _adapted(target, kind, steps, number, seed)
    step = ratio / stiffest if kind == "SGLD" else ratio / stiffest**0.5
    play = _posteriors if library == "posteriors" else _blackjax
    return play(target, kind, step, friction, steps, number, seed)


def _posteriors(
    target: Target, kind: str, step: float, friction: float, steps: int, number: int, seed: int
) -> Run:
    from posteriors.sgmcmc import baoa, sghmc, sgld

    torch.manual_seed(seed)

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
    state = transform.init(target.first().expand(number, -1).clone())
    thin, kept = max(1, steps // 4000), []
    begin = time.process_time()
    for i in range(steps):
        batch = None
        if target.batch is not None:
            batch = torch.randint(target.num_data, (number, target.batch))
        state = transform.update(state, batch, inplace=False)
        state = state[0] if type(state) is tuple else state  # newer versions return (state, aux)
        if i >= steps // 5 and i % thin == 0:
            kept.append(state.params.clone())
    seconds = time.process_time() - begin
    return Run(target.observe(torch.stack(kept, 1).detach().numpy()), steps, seconds)


def _blackjax(
    target: Target, kind: str, step: float, friction: float, steps: int, number: int, seed: int
) -> Run:
    import blackjax
    import jax
    import jax.numpy as jnp

    prior, loglik, data = in_jax(target)

    def estimate(theta: Any, rows: Any) -> Any:
        share = 1.0 if target.batch is None else target.num_data / target.batch
        return jax.grad(lambda t: prior(t) + share * loglik(t, *rows))(theta)

    inner = 1
    algorithm = blackjax.sgld(estimate)
    if kind == "SGHMC":
        # Momenta are drawn anew after each call: half a correlation time of the softest direction.
        inner = int(np.clip(round(1 / (friction * step)), 1, 100))
        algorithm = blackjax.sghmc(estimate, inner, alpha=friction)
    calls = steps // inner
    thin = max(1, calls // 4000)

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

    @jax.jit
    def chain(key: Any) -> Any:
        count = calls // thin
        keys = jax.random.split(key, count * thin).reshape(count, thin)
        return jax.lax.scan(kept, jnp.asarray(target.first().numpy()), keys)[1]

    keys = jax.random.split(jax.random.key(seed), number)
    seconds, draws = _timed(jax.jit(jax.vmap(chain)), keys)
    draws = draws[:, draws.shape[1] // 5 :]
    return Run(target.observe(draws), calls * inner, seconds)


def _adapted(target: Target, kind: str, steps: int, number: int, seed: int) -> Run:
    """NUTS with window adaptation, MCLMC with its own; both start adapted, warm-up not counted."""
    import blackjax
    import jax
    import jax.numpy as jnp

    prior, loglik, data = in_jax(target)

    def log_density(theta: Any) -> Any:
        return prior(theta) + loglik(theta, *data)

    start, key = jnp.asarray(target.first().numpy()), jax.random.key(seed)
    first, second, third = jax.random.split(key, 3)
    if kind == "NUTS":
        warm = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), _ = jax.jit(lambda k: warm.run(k, start, num_steps=500))(first)
        algorithm = blackjax.nuts(log_density, **parameters)
        count = 400

        def gradients(info: Any) -> Any:
            return info.num_integration_steps
    else:
        state = blackjax.mcmc.mclmc.init(start, log_density, second)
        make = blackjax.mcmc.mclmc.build_kernel
        kernel = functools.partial(make)() if _no_arguments(make) else make(log_density, 1.0)
        tuned = blackjax.mclmc_find_L_and_step_size(
            kernel, min(steps, 4000), state, first, log_density
        )
        state, parameters = tuned[0], tuned[1]
        algorithm = blackjax.mclmc(
            log_density,
            L=parameters.L,
            step_size=parameters.step_size,
            inverse_mass_matrix=parameters.inverse_mass_matrix,
        )
        count = steps // 2  # two gradients a step

        def gradients(info: Any) -> Any:
            return 2

    def one_step(state: Any, key: Any) -> tuple[Any, Any]:
        state, info = algorithm.step(key, state)
        return state, (state.position, gradients(info))

    def chain(key: Any) -> Any:
        return jax.lax.scan(one_step, state, jax.random.split(key, count))[1]

    keys = jax.random.split(third, number)
    seconds, (draws, used) = _timed(jax.jit(jax.vmap(chain)), keys)
    draws = draws[:, draws.shape[1] // 10 :]
    total = int(np.sum(used)) // number if kind == "NUTS" else 2 * count
    return Run(target.observe(draws), total, seconds)


def _no_arguments(make: Callable[..., Any]) -> bool:
    import inspect

    needed = [p for p in inspect.signature(make).parameters.values() if p.default is p.empty]
    return not needed


def _timed(function: Callable[..., Any], keys: Any) -> tuple[float, Any]:
    """CPU-seconds of a second call, and its result in NumPy: the first compiles."""
    import jax

    compiled = function.lower(keys).compile()
    begin = time.process_time()
    result = jax.block_until_ready(compiled(keys))
    seconds = time.process_time() - begin
    return seconds, jax.tree.map(np.asarray, result)
