"""Logistic regression, 784 weights, 12,000 rows, batch 64: chain-steps per second against blackjax.

    python benchmarks/chains.py [--repeats 7] [--steps 4000] [--threads 1] [--cpu-time]

Both sides run SGLD in float32 on the same data, with batches of 64 rows that are drawn with
replacement for each chain and step, and keep every state; ours also EMCMC. Each is called once
before the clock starts, so that nothing is compiled on the clock. `floor` reads the rows of every
batch once, for x[rows] · θ, and does nothing else: no chain can be faster. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import timing
import torch
import torch.nn.functional as F

from entropy_mcmc import chains
from entropy_mcmc.chains import compilation, noise_and_batches, sampling, steps
from entropy_mcmc.samplers.kernel.inductor import quiet_compiler

ROWS, WEIGHTS, BATCH, LR = 12_000, 784, 64, 0.01


def energy(theta: torch.Tensor, rows: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    return F.softplus(-signs * (rows @ theta)).mean()


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, WEIGHTS)
    return x, (x[:, 0] + torch.randn(ROWS)).sign()


def ours(x: torch.Tensor, y: torch.Tensor, number: int, steps: int, **changes: Any) -> Any:
    settings = {"sampler": "sgld", "lr": LR, "num_data": ROWS, **changes}
    settings |= {"data": (x, y), "batch_size": BATCH, "chains": number, "steps": steps}
    return lambda: chains.run(energy, torch.zeros(WEIGHTS), seed=0, compile=True, **settings)


def floor(x: torch.Tensor, number: int, steps: int) -> Callable[[], object]:
    """The batches of all chains and steps, read once by a compiled kernel, 16 steps a call."""
    rows = torch.randint(ROWS, (-(-steps // 16), 16, number, BATCH))
    theta = torch.zeros(WEIGHTS)

    def read(rows: torch.Tensor, x: torch.Tensor, theta: torch.Tensor) -> list[torch.Tensor]:
        return [(x[rows] * theta).sum(-1)]

    with torch.no_grad(), quiet_compiler():
        call = compilation.compiled(read, [rows[0], x, theta], direct=True)
    return lambda: [call([part, x, theta]) for part in rows]


def blackjax_sgld(
    x: Any, y: Any, number: int, steps: int, *, shared: bool = False
) -> Callable[[], object]:
    import blackjax
    import jax
    import jax.numpy as jnp

    rows, signs = jnp.asarray(x.numpy()), jnp.asarray(y.numpy())

    def likelihood(theta: Any, batch: Any) -> Any:
        return -jax.nn.softplus(-batch[1] * (batch[0] @ theta))

    gradient = blackjax.sgmcmc.gradients.grad_estimator(lambda theta: 0.0, likelihood, ROWS)
    kernel = blackjax.sgld(gradient)

    def one(key: Any) -> Any:
        def step(theta: Any, key: Any) -> Any:
            first, second = jax.random.split(key)
            chosen = jax.random.randint(first, (BATCH,), 0, ROWS)
            theta = kernel.step(second, theta, (rows[chosen], signs[chosen]), LR / ROWS)
            return theta, theta

        return jax.lax.scan(step, jnp.zeros(WEIGHTS), jax.random.split(key, steps))[1]

    def together(key: Any) -> Any:
        """All chains in one scan, with one batch for each step."""

        def step(thetas: Any, key: Any) -> Any:
            first, second = jax.random.split(key)
            chosen = jax.random.randint(first, (BATCH,), 0, ROWS)
            batch, keys = (rows[chosen], signs[chosen]), jax.random.split(second, number)
            moved = jax.vmap(lambda k, t: kernel.step(k, t, batch, LR / ROWS))(keys, thetas)
            return moved, moved

        start = jnp.zeros((number, WEIGHTS))
        return jax.lax.scan(step, start, jax.random.split(key, steps))[1]

    key = jax.random.PRNGKey(0)
    if shared:
        all_at_once = jax.jit(together)
        return lambda: all_at_once(key).block_until_ready()
    many = jax.jit(jax.vmap(one)) if number > 1 else jax.jit(one)
    keys = jax.random.split(key, number) if number > 1 else key
    return lambda: many(keys).block_until_ready()


def profile(run: Callable[[], object], chain_steps: int) -> dict[str, float]:
    """Microseconds of wall clock per chain-step of a run, by what it was spent on."""
    spent = dict.fromkeys(("draws", "kernel", "keeping"), 0.0)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments)
            spent[name] += time.perf_counter() - start
            return result

        return call

    made = steps.make_call
    inputs = noise_and_batches.NoiseAndBatches
    with (
        patch.object(inputs, "draw", timed("draws", inputs.draw)),
        patch.object(sampling, "_keep", timed("keeping", sampling._keep)),
        patch.object(steps, "make_call", lambda *given: timed("kernel", made(*given))),
    ):
        start = time.perf_counter()
        run()
        whole = time.perf_counter() - start
    spent["rest"] = whole - sum(spent.values())
    return {name: round(1e6 * seconds / chain_steps, 2) for name, seconds in spent.items()}


def compare(
    data: tuple[torch.Tensor, torch.Tensor],
    number: int,
    steps: int,
    repeats: int,
    target: str,
    cpu_time: bool,
) -> dict[str, Any]:
    actions = {
        "ours sgld": ours(*data, number, steps),
        "ours emcmc": ours(*data, number, steps, sampler="emcmc", eta=1e-3),
        "floor": floor(data[0], number, steps),
    }
    try:
        actions["blackjax sgld"] = blackjax_sgld(*data, number, steps)
    except ImportError:
        print("blackjax is not installed: its rows are left out; pip install entropy-mcmc[bench]")
    times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
    speeds = {k: number * steps / statistics.median(t) for k, t in times.items()}
    out: dict[str, Any] = {"chain_steps_per_second": speeds, "rows": []}
    profiles = [profile(actions["ours sgld"], number * steps) for _ in range(repeats)]
    middle = {name: statistics.median(p[name] for p in profiles) for name in profiles[0]}
    out["our_sgld_us_per_chain_step"] = middle
    for name in ("sgld", "emcmc"):
        if "blackjax sgld" in times:
            many = f"{number} chain" + ("s" if number > 1 else "")
            what = f"{many}, chain-steps per second, our {name} / blackjax SGLD"
            row = timing.ratio(what, times["blackjax sgld"], times[f"ours {name}"], target)
            out["rows"].append(row)
    if "blackjax sgld" in times:
        what = f"{many}, reading the rows alone / blackjax SGLD: no sampler can do better"
        out["rows"].append(timing.ratio(what, times["blackjax sgld"], times["floor"], "–"))
    return out


def products(x: torch.Tensor, number: int, steps: int) -> Callable[[], object]:
    """The two products of a shared batch with the weights of all chains, and nothing else."""
    rows = torch.randint(ROWS, (steps, BATCH))
    thetas = torch.zeros(number, WEIGHTS)

    def both() -> None:
        for chosen in rows:
            batch = x[chosen]
            (thetas @ batch.T) @ batch

    return both


def compare_shared(
    data: tuple[torch.Tensor, torch.Tensor], number: int, steps: int, repeats: int, cpu_time: bool
) -> dict[str, Any]:
    """Chains with one batch for all of them: another algorithm, whose chains are correlated."""
    actions = {
        "ours": ours(*data, number, steps, shared_batch=True),
        "products": products(data[0], number, steps),
    }
    try:
        actions["shared"] = blackjax_sgld(*data, number, steps, shared=True)
        actions["own"] = blackjax_sgld(*data, number, steps)
    except ImportError:
        return {"rows": []}
    times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
    first = f"{number} chains with one shared batch, our sgld / blackjax"
    rows = [
        timing.ratio(f"{first} with own batches (a different algorithm)", times["own"],
                     times["ours"], "≥ 5"),
        timing.ratio(f"{first} with a shared batch", times["shared"], times["ours"], "≥ 1.3"),
    ]  # fmt: skip
    profiles = [profile(actions["ours"], number * steps) for _ in range(repeats)]
    parts = {name: statistics.median(p[name] for p in profiles) for name in profiles[0]}
    each = {k: 1e6 * statistics.median(t) / (number * steps) for k, t in times.items()}
    return {"rows": rows, "us_per_chain_step": each, "of_ours": parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--threads", type=int, help="of torch; 1 also holds XLA to one")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, CPU time, not wall")
    given = parser.parse_args()
    timing.use_threads(given.threads, given.cpu_time)
    data = make_data()
    one = compare(data, 1, given.steps, given.repeats, "≥ 1", given.cpu_time)
    many = compare(data, 64, max(64, given.steps // 256 * 16), given.repeats, "≥ 2", given.cpu_time)
    few = max(64, given.steps // 256 * 16)
    shared = compare_shared(data, 64, few, given.repeats, given.cpu_time)
    rows = [*one.pop("rows"), *many.pop("rows"), *shared.pop("rows")]
    out = {"threads": torch.get_num_threads(), "cpu_time": given.cpu_time, "rows": rows}
    print(json.dumps(out | {"one": one, "many": many, "shared": shared}, indent=1))


if __name__ == "__main__":
    main()
