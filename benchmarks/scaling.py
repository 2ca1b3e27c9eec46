"""Cost per step and peak memory of a fused EMCMC step from 10^5 to 10^8 parameters.

    python benchmarks/scaling.py [--largest 8] [--cpu-time]

Every size runs in its own process. Memory is the peak during the steps over what the process held
with model, gradient and θ_a in place, after a first step at a small size compiled the kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import timing
import torch

from entropy_mcmc.samplers import EntropyMCMC


def sampler(size: int) -> EntropyMCMC:
    param = torch.nn.Parameter(torch.zeros(size))
    param.grad = torch.ones(size)
    settings = {"lr": 0.1, "num_data": 50_000, "eta": 4e-4, "temperature": 1e-4, "seed": 0}
    return EntropyMCMC([param], fused=True, **settings)


def status_bytes(key: str) -> int:
    """A size from /proc: VmRSS is what the process holds, VmHWM the most that it held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def forget_peak() -> None:
    """Start VmHWM anew: else the compiler's own peak would hide that of the step."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(size: int, cpu_time: bool) -> dict[str, Any]:
    timing.use_threads(None, cpu_time)
    clock = time.process_time if cpu_time else time.perf_counter
    sampler(2**16).step()  # compile
    chain = sampler(size)
    param = chain.param_groups[0]["params"][0]
    chain.state[param]["guide"] = param.detach() + 0.0
    held = 3 * 4 * size
    forget_peak()
    base = status_bytes("VmRSS")
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
        "extra_peak_mib": (status_bytes("VmHWM") - base) / 2**20,
    }


def summary(rows: list[dict[str, Any]]) -> list[timing.Row]:
    """The two targets: cost per parameter does not grow, and a step needs no memory of its own."""
    largest, million = rows[-1], rows[min(1, len(rows) - 1)]
    growth = largest["ns_per_parameter"] / million["ns_per_parameter"]
    size = f"{largest['parameters']:.0e} parameters"
    extra = largest["extra_peak_mib"]
    return [
        {"what": f"cost per parameter, {size} / 1e+06", "ratio": growth, "quartiles": None,
         "target": "about 1"},
        {"what": f"MiB beyond model, gradient, θ_a at {size}", "ratio": extra, "quartiles": None,
         "target": "≤ 64"},
    ]  # fmt: skip


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
    out = {"threads": 1 if given.cpu_time else torch.get_num_threads(), "cpu_time": given.cpu_time}
    print(json.dumps(out | {"rows": summary(rows), "scaling": rows}, indent=1))


if __name__ == "__main__":
    main()
