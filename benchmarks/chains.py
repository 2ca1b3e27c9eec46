"""Logistic regression, 784 weights, 12,000 rows, batch 64: chain-steps per second against blackjax.

    python benchmarks/chains.py [--repeats 5] [--steps 4000] [--cpu-time]

Both sides run SGLD on the same data; ours also EMCMC. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import timing
import torch
import torch.nn.functional as F

from entropy_mcmc import chains

ROWS, WEIGHTS, BATCH, LR = 12_000, 784, 64, 0.01


def ours(x: torch.Tensor, y: torch.Tensor, number: int, steps: int, **changes: Any) -> Any:
    def energy(theta: torch.Tensor, rows: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        return F.softplus(-signs * (rows @ theta)).mean()

    settings = {"sampler": "sgld", "lr": LR, "num_data": ROWS, **changes}
    settings |= {"data": (x, y), "batch_size": BATCH, "chains": number, "steps": steps}
    return lambda: chains.run(energy, torch.zeros(WEIGHTS), seed=0, compile=True, **settings)


def blackjax_sgld(x: Any, y: Any, number: int, steps: int) -> Callable[[], object]:
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

    many = jax.jit(jax.vmap(one)) if number > 1 else jax.jit(one)
    key = jax.random.PRNGKey(0)
    keys = jax.random.split(key, number) if number > 1 else key
    return lambda: many(keys).block_until_ready()


def compare(number: int, steps: int, repeats: int, target: str, cpu_time: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, WEIGHTS)
    y = (x[:, 0] + torch.randn(ROWS)).sign()
    actions = {
        "ours sgld": ours(x, y, number, steps),
        "ours emcmc": ours(x, y, number, steps, sampler="emcmc", eta=1e-3),
    }
    try:
        actions["blackjax sgld"] = blackjax_sgld(x, y, number, steps)
    except ImportError:
        print("blackjax is not installed: its rows are left out; pip install entropy-mcmc[bench]")
    times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
    speeds = {k: {"chain_steps_per_second": number * steps / min(t)} for k, t in times.items()}
    out: dict[str, Any] = {"chains": number, "speeds": speeds, "rows": []}
    for name in ("sgld", "emcmc"):
        if "blackjax sgld" in times:
            what = f"{number} chain(s), chain-steps per second, our {name} / blackjax SGLD"
            row = timing.ratio(what, times["blackjax sgld"], times[f"ours {name}"], target)
            out["rows"].append(row)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, CPU time, not wall")
    given = parser.parse_args()
    timing.one_thread(given.cpu_time)
    one = compare(1, given.steps, given.repeats, "≥ 1", given.cpu_time)
    many = compare(64, max(64, given.steps // 16), given.repeats, "≥ 2", given.cpu_time)
    print(json.dumps({"threads": torch.get_num_threads(), "one": one, "many": many}, indent=1))


if __name__ == "__main__":
    main()
