"""Compile the kernels of a sampler in another process, into inductor's cache on disk.

A chain whose steps are to be compiled later starts this at its beginning; when it gets there, the
kernels come from the cache. What is compiled, and from which step on, does not depend on it.

    python -m entropy_mcmc.samplers.kernel.ahead '{"sampler": "sgld", "group": {…}, …}'
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import torch

from entropy_mcmc.samplers import registry
from entropy_mcmc.samplers.base import Sampler
from entropy_mcmc.samplers.kernel import compiled
from entropy_mcmc.samplers.kernel.tensor_buckets import plan, slot
from entropy_mcmc.samplers.rule import Form

PATIENCE = 120.0  # seconds


class Compilation:
    """A process that compiles; `wait` until it is done, `close` if it is not needed any more."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        command = [sys.executable, "-m", __name__, json.dumps(job)]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)

    def wait(self) -> None:
        """Return when the kernels are in the cache, or could not be compiled in good time."""
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # whoever asks then compiles them
            self.close()

    def close(self) -> None:
        """Stop."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def compile_ahead(sampler: Sampler, steps: int) -> Compilation | None:
    """Start to compile what a sampler will need within `steps` steps; None if it is nothing."""
    group = sampler.param_groups[0]
    switch, device = sampler.compiled_from, group["params"][0].device.type
    later = switch is not None and group["step"] < switch < steps and group["fused"] == "auto"
    if not later or device != "cpu" or not compiled.available(device):
        return None
    return Compilation(_job(sampler))


def _job(sampler: Sampler) -> dict[str, Any]:
    """What the other process must know, as JSON."""
    group = sampler.param_groups[0]
    params = [p for g in sampler.param_groups for p in g["params"]]
    buckets = plan(tuple(slot(i, p) for i, p in enumerate(params)))
    (name,) = (n for n in registry.SAMPLERS if _is(sampler, registry.load(n)))
    return {
        "sampler": name,
        "group": {k: v for k, v in group.items() if k not in ("params", "param_names")},
        "kinds": sorted({"merged" if len(b.members) > 1 else "single" for b in buckets}),
        "dtype": str(params[0].dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
    }


def _is(sampler: Sampler, kind: type[Sampler]) -> bool:
    return kind in type(sampler).__mro__ and kind.update is type(sampler).update


def _forms(job: Mapping[str, Any]) -> Iterator[tuple[Form, str]]:
    """Rules of the phases of a run, with and without noise and coupling, and their kernels."""
    kind, group = registry.load(job["sampler"]), dict(job["group"])
    for noise, coupled in product((False, True), (False, True)):
        phase = {"noise": noise, "coupled": coupled}
        update = kind.update({**group, **{k: v for k, v in phase.items() if k in group}})
        for name in job["kinds"] if update.normals else ("quiet",):
            yield update.form, name


def main() -> None:
    """Compile what the argument describes."""
    job = json.loads(sys.argv[1])
    os.nice(5)  # the chain goes first
    torch.set_num_threads(job["threads"])
    dtype, device = getattr(torch, job["dtype"]), torch.device("cpu")
    dtype = torch.float32 if dtype is torch.bfloat16 else dtype
    for form, kind in dict.fromkeys(_forms(job)):
        count = len(form.variables._fields) + 1  # and the gradient
        compiled._ready(form, kind, count, dtype, device, job["threads"])


if __name__ == "__main__":
    main()
