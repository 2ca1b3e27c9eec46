"""Cost per step and peak memory of a fused EMCMC step from 10^5 to 10^8 parameters.

    python benchmarks/scaling.py [--largest 8] [--cpu-time]

Every size runs in its own process. Memory is the growth of the process's peak over what it held
with model, gradient and θ_a in place, after a first step at a small size compiled the kernel.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import timing
import torch

from entropy_mcmc.samplers import EntropyMCMC


def sampler(size: int) -> EntropyMCMC:
    param = torch.nn.Parameter(torch.zeros(size))
    param.grad = torch.ones(size)
    settings = {"lr": 0.1, "num_data": 50_000, "eta": 4e-4, "temperature": 1e-4, "seed": 0}
    return EntropyMCMC([param], fused=True, **settings)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(size: int, cpu_time: bool) -> dict[str, Any]:
    timing.one_thread(cpu_time)
    clock = time.process_time if cpu_time else time.perf_counter
    sampler(2**16).step()  # compile
    chain = sampler(size)
    param = chain.param_groups[0]["params"][0]
    chain.state[param]["guide"] = param.detach() + 0.0
    held = 3 * 4 * size
    base = peak_bytes()
    times = []
    for _ in range(max(3, min(50, 10**8 // size))):
        start = clock()
        chain.step()
        times.append(clock() - start)
    seconds = statistics.median(times)
    return {
        "parameters": size,
        "median_ms": 1e3 * seconds,
        "least_ms": 1e3 * min(times),
        "ns_per_parameter": 1e9 * seconds / size,
        "held_mib": held / 2**20,
        "extra_peak_mib": (peak_bytes() - base) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=8, help="power of ten")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, CPU time, not wall")
    given = parser.parse_args()
    if given.size:
        print(json.dumps(measure(given.size, given.cpu_time)))
        return
    rows = []
    for power in range(5, given.largest + 1):
        command = [sys.executable, __file__, "--size", str(10**power)]
        command += ["--cpu-time"] if given.cpu_time else []
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    print(json.dumps({"threads": torch.get_num_threads(), "scaling": rows}, indent=1))


if __name__ == "__main__":
    main()
