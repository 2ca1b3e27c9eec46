"""Two versions of the library, measured in turns: is the new one slower?

python benchmarks/before_after.py OLD/src NEW/src [--rounds 7]

Each round starts one process per version, in changing order, so that both see the same machine. A
row is the time of the new version over that of the old one: median and quartiles over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median, quantiles

STEPS = 300


def timed(step: Callable[[], object], count: int) -> float:
    """Best processor time of five goes, so that a busy neighbour counts less."""
    goes = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(count // 5):
            step()
        goes.append(time.process_time() - start)
    return min(goes)


def measure() -> dict[str, float]:
    start = time.process_time()
    import torch

    base = time.process_time()
    import entropy_mcmc
    from entropy_mcmc import SGLD, EntropyMCMC, chains

    rows = {"import": time.process_time() - start, "import torch": base - start}
    torch.set_num_threads(1)
    torch.manual_seed(0)

    def stepper(shapes: list[tuple[int, ...]], kind: type, **settings: object) -> float:
        params = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        for p in params:
            p.grad = torch.randn_like(p)
        sampler = kind(params, lr=0.1, num_data=1000, seed=0, **settings)
        for _ in range(5):
            sampler.step()
        return timed(sampler.step, STEPS)

    small = [(40, 40), (40,)] * 31
    rows["step, 62 small tensors, EMCMC"] = stepper(small, EntropyMCMC, eta=0.01)
    rows["step, 62 small tensors, SGLD"] = stepper(small, SGLD)
    mlp = [(256, 784), (256,), (256, 256), (256,), (10, 256), (10,)]
    rows["step, MLP, EMCMC eager"] = stepper(mlp, EntropyMCMC, eta=0.01, fused=False)
    rows["step, MLP, EMCMC compiled"] = stepper(mlp, EntropyMCMC, eta=0.01, fused=True)
    x, y = torch.randn(2000, 50), torch.randint(2, (2000,)).float()

    def energy(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y)

    def run() -> object:
        return chains.run(
            energy, torch.zeros(50), steps=60, lr=0.1, chains=16, data=(x, y), batch_size=64,
            num_data=2000, eta=0.01, seed=0, compile=False,
        )  # fmt: skip

    rows["chains, eager"] = timed(run, 10)
    assert entropy_mcmc.__version__
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*", help="src folders: the old one and the new one")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    if not given.trees:
        print(json.dumps(measure()))
        return
    rounds: dict[str, list[dict[str, float]]] = {tree: [] for tree in given.trees}
    for i in range(given.rounds):
        for tree in given.trees if i % 2 else given.trees[::-1]:
            env = {**os.environ, "PYTHONPATH": tree}
            done = subprocess.run([sys.executable, __file__], env=env, check=True, text=True,
                                  stdout=subprocess.PIPE)  # fmt: skip
            rounds[tree].append(json.loads(done.stdout))
    old, new = (rounds[tree] for tree in given.trees)
    print("| what | new / old | quartiles |\n|---|--:|--:|")
    for name in old[0]:
        ratios = [b[name] / a[name] for a, b in zip(old, new, strict=True)]
        low, _, high = quantiles(ratios)
        print(f"| {name} | {median(ratios):.3f} | {low:.3f} to {high:.3f} |")
    over = median(r["import"] / r["import torch"] for r in new)
    print(f"\nimport entropy_mcmc / import torch: {over:.3f}")


if __name__ == "__main__":
    main()
