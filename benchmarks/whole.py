"""What a user waits for: imports, `emcmc --help`, a whole command, a cold compilation; and memory.

    python benchmarks/whole.py [--part import | command | compile | memory] [--repeats 5]

Every measurement is a process of its own. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import timing

COMMAND = """
import sys, time
start = time.perf_counter()
from entropy_mcmc import cli
from entropy_mcmc.run import chain_loop
spent = 0.0
steps = chain_loop._steps
def timed(*given):
    global spent
    began = time.{clock}()
    steps(*given)
    spent += time.{clock}() - began
chain_loop._steps = timed
code = cli.main(["sample", "--run_dir", sys.argv[1]])
assert code == 0, code
print("LOOPS", spent)
"""
COMPILE = """
import time, torch
from entropy_mcmc import EntropyMCMC
theta = torch.nn.Parameter(torch.zeros(200_000))
theta.grad = torch.ones_like(theta)
sampler = EntropyMCMC([theta], lr=0.1, num_data=100, eta=0.1, seed=0, fused=True)
start = time.{clock}()
sampler.step()
print("SECONDS", time.{clock}() - start)
"""
CHAINS = """
import torch
from entropy_mcmc import chains
torch.set_num_threads(1)
x = torch.randn(100_000, 20)
def energy(theta, rows):
    return (rows @ theta).square().mean()
def run():
    return chains.run(energy, torch.zeros(20), chains=64, steps=200, lr=0.01, sampler="sgld",
                      data=(x,), batch_size=64, compile=False, seed=0)
chains.run(energy, torch.zeros(20), chains=2, steps=20, lr=0.01, sampler="sgld", data=(x,),
           batch_size=64, compile=False, seed=0)
kept = 64 * 200 * 20 * 4
"""
PREDICT = """
import tempfile, torch
from entropy_mcmc.posterior import Posterior
torch.set_num_threads(1)
x = torch.randn(100_000, 20)
net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
posterior = Posterior.create(tempfile.mkdtemp(), net)
for step in range(16):
    posterior.collect(step=step)
posterior.predict_proba(x[:300])
def run():
    return posterior.predict_proba(x)
kept = 100_000 * 10 * 4
"""
ESTIMATOR = """
import numpy as np, torch
from entropy_mcmc.sklearn import EntropyMCMCClassifier
torch.set_num_threads(1)
x = np.random.default_rng(0).normal(size=(100_000, 20))
y = (x[:, 0] > 0).astype(int)
def fit(rows):
    return EntropyMCMCClassifier(n_steps=200, random_state=0).fit(x[:rows], y[:rows])
fit(1000).predict_proba(x[:1000])
def run():
    return fit(100_000).predict_proba(x)
kept = 100_000 * 2 * 8
"""
PEAK = """
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = run()
growth = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print("GROWTH", growth / 2**20, kept / 2**20)
"""


def seconds(arguments: list[str], cpu_time: bool, **environment: str) -> tuple[float, str]:
    """Wall clock, or processor time, of a Python process, and what it printed."""
    before, start = _children(), time.perf_counter()
    run = [sys.executable, *arguments]
    done = subprocess.run(
        run, check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
    spent = _children() - before if cpu_time else time.perf_counter() - start
    return spent, done.stdout


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def value(what: str, numbers: list[float], target: str) -> timing.Row:
    """A row for a quantity that is no ratio."""
    spread = timing.quartiles(numbers) if len(numbers) > 1 else None
    return {
        "what": what,
        "ratio": statistics.median(numbers),
        "quartiles": spread,
        "target": target,
    }


def imports(repeats: int, cpu_time: bool) -> list[timing.Row]:
    texts = {"torch": "import torch", "ours": "from entropy_mcmc import EntropyMCMC"}
    times: dict[str, list[float]] = {"torch": [], "ours": [], "help": []}
    for _ in range(repeats + 1):
        for name, text in texts.items():
            times[name].append(seconds(["-c", text], cpu_time)[0])
        times["help"].append(seconds(["-m", "entropy_mcmc", "--help"], cpu_time)[0])
    times = {name: spent[1:] for name, spent in times.items()}  # the first fills the disk's cache
    return [
        timing.ratio(
            "from entropy_mcmc import EntropyMCMC / import torch",
            times["ours"],
            times["torch"],
            "≤ 1.15",
        ),
        value("emcmc --help, seconds", times["help"], "≤ 0.3"),
    ]


def command(repeats: int, cpu_time: bool) -> list[timing.Row]:
    """`emcmc sample` without options: the process from its start to its end, and its loops."""
    whole, loops = [], []
    script = COMMAND.format(clock="process_time" if cpu_time else "perf_counter")
    for _ in range(max(2, repeats // 2)):
        with tempfile.TemporaryDirectory() as folder:
            spent, text = seconds(["-c", script, f"{folder}/run"], cpu_time)
        whole.append(spent)
        loops.append(_printed(text, "LOOPS")[0])
    return [
        timing.ratio("emcmc sample, whole command / its training loops", whole, loops, "≤ 1.4"),
        value("emcmc sample, whole command, seconds", whole, "–"),
    ]


def cold_compile(repeats: int, cpu_time: bool) -> list[timing.Row]:
    """The first compiled step with an empty cache: tracing, generated C++ and its compiler."""
    numbers = []
    script = COMPILE.format(clock="perf_counter")
    for _ in range(max(1, repeats // 3)):
        with tempfile.TemporaryDirectory() as folder:
            text = seconds(["-c", script], False, TORCHINDUCTOR_CACHE_DIR=folder)[1]
        numbers.append(_printed(text, "SECONDS")[0])
    return [value("cold compilation of the fused step, one sampler, seconds", numbers, "≤ 15")]


def memory(repeats: int, cpu_time: bool) -> list[timing.Row]:
    """Peak memory beyond the data, beside what is kept of the result."""
    rows = []
    for what, script in (("chains.run, 64 chains, 10^5 rows", CHAINS),
                         ("predict_proba, 16 samples, 10^5 rows", PREDICT),
                         ("EntropyMCMCClassifier, fit and predict_proba, 10^5 rows of 20 float64 "
                          "(15.3 MiB)", ESTIMATOR)):  # fmt: skip
        growth, kept = _printed(seconds(["-c", script + PEAK], False)[1], "GROWTH")
        rows.append(value(f"{what}: peak MiB beyond the data, {kept:.1f} kept", [growth], "–"))
    return rows


def _printed(text: str, mark: str) -> list[float]:
    (line,) = [line for line in text.splitlines() if line.startswith(mark)]
    return [float(word) for word in line.split()[1:]]


def main() -> None:
    parts = {"import": imports, "command": command, "compile": cold_compile, "memory": memory}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--part", choices=parts, default="import")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, not wall")
    given = parser.parse_args()
    if given.cpu_time:
        os.environ["OMP_NUM_THREADS"] = "1"
    rows = parts[given.part](given.repeats, given.cpu_time)
    threads = 1 if given.cpu_time else os.cpu_count()
    print(json.dumps({"threads": threads, "cpu_time": given.cpu_time, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
