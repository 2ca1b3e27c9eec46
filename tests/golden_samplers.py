"""Fixed seeded runs of every sampler and variant, and the SHA-256 of all that they leave behind.

`python tests/golden_samplers.py FILE [eager]` records them, with the code of a commit that is known
to be right: every file in tests/golden named samplers*.json is one such record. Gradients are
elementary (no BLAS), so the bytes depend on torch's version and on the processor alone, and on the
compiler for compiled steps. All three are kept beside the hashes.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import entropy_mcmc as em
from golden_chains import machine

FILES = sorted((Path(__file__).parent / "golden").glob("samplers*.json"))
STEPS = 5
# Two chunks of the eager path, a tensor with a bucket of its own, and small ones that are merged.
SHAPES = [(70_000,), (150, 300), (64,), (7, 3), (), (1,)]

LANGEVIN = {"lr": 0.3, "num_data": 10, "temperature": 0.7, "weight_decay": 0.05, "seed": 5}
GUIDED = {**LANGEVIN, "eta": 0.2}
NESTED = {**GUIDED, "inner_lr": 0.4, "inner_steps": 3, "averaging": 0.6, "lr": 0.9}
SGD = {"lr": 0.3, "weight_decay": 0.05, "momentum": 0.6, "rho": 0.1}
SAMPLERS = {
    "sgld": (em.SGLD, LANGEVIN),
    "sghmc": (em.SGHMC, {**LANGEVIN, "momentum": 0.6}),
    "emcmc": (em.EntropyMCMC, GUIDED),
    "emcmc-decayed-guide": (em.EntropyMCMC, {**GUIDED, "guide_weight_decay": 0.2}),
    "emcmc-momentum": (em.EntropyMCMC, {**GUIDED, "momentum": 0.6}),
    "emcmc-momentum-decayed-guide": (
        em.EntropyMCMC,
        {**GUIDED, "momentum": 0.6, "guide_weight_decay": 0.2},
    ),
    "emcmc-exact": (em.EntropyMCMC, {**GUIDED, "guide_update": "exact"}),
    "emcmc-gibbs": (em.EntropyMCMC, {**GUIDED, "guide_update": "gibbs"}),
    "entropy-sgd": (em.EntropySGD, NESTED),
    "entropy-sgld": (em.EntropySGLD, NESTED),
    "sam": (em.SAM, SGD),
    "sam-adaptive": (em.SAM, {**SGD, "adaptive": True}),
    "bsam": (em.BSAM, {**LANGEVIN, "rho": 0.1, "beta2": 0.9, "initial_scale": 0.5}),
}
VARIANTS = ("plain", "quiet", "cold", "bfloat16", "float64", "groups", "changing-lr", "no-gradient")
COMPILED = ("plain", "quiet", "groups", "changing-lr")
DTYPES = {"bfloat16": torch.bfloat16, "float64": torch.float64}


def environment():
    """What the bytes may depend on besides the code."""
    compiler = shutil.which("g++")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    return {
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "processor": machine()["processor"],
        "compiler": version.splitlines()[0] if compiler else None,
    }


def parameters(variant):
    """Parameters whose elements are small multiples of 1/8, exact in every dtype."""
    dtype = DTYPES.get(variant, torch.float32)
    numbers = [torch.arange(torch.Size(shape).numel()).reshape(shape) for shape in SHAPES]
    return [nn.Parameter(((n * (i + 3)) % 17 - 8).to(dtype) / 8) for i, n in enumerate(numbers)]


def set_gradients(params, step, skipped):
    """ĝ = (i+1)/4·θ − step/8: one product and one difference, rounded alike everywhere."""
    for i, p in enumerate(params):
        p.grad = None if i in skipped else p.detach() * ((i + 1) / 4) - step / 8


def make(name, variant, params, fused):
    """The sampler of a variant; of "groups", the second group has other hyper-parameters."""
    sampler, options = SAMPLERS[name]
    options = {**options, "fused": fused}
    if variant == "cold" and "temperature" in options:
        options["temperature"] = 0.0
    if variant != "groups":
        return sampler(params, **options)
    other = {"lr": options["lr"] / 2, "weight_decay": 0.125}
    other |= {"temperature": 0.25} if "temperature" in options else {}
    other |= {"eta": 0.5} if "eta" in options else {}
    return sampler([{"params": params[::2]}, {"params": params[1::2], **other}], **options)


def run(name, variant, fused):
    """Make a few steps and hash what is there after them."""
    params = parameters(variant)
    sampler = make(name, variant, params, fused)
    skipped = (1, 3) if variant == "no-gradient" else ()
    for step in range(STEPS):
        for group in sampler.param_groups:
            if variant == "changing-lr":
                group["lr"] = SAMPLERS[name][1]["lr"] * (1 - step / (2 * STEPS))
            if variant == "quiet" and "noise" in group:
                group["noise"] = step >= 3

        def closure(step=step):
            set_gradients(params, step, skipped)
            return torch.zeros(())

        sampler.step(closure)
    return digest(sampler, params)


def digest(sampler, params):
    """SHA-256 of θ, of every variable beside it, and of a draw of bSAM."""
    hasher = hashlib.sha256()
    for p in params:
        add(hasher, "theta", p)
        for key in sorted(sampler.state.get(p, {})):
            add(hasher, key, sampler.state[p][key])
    if isinstance(sampler, em.BSAM):
        with sampler.sampled(3):
            for p in params:
                add(hasher, "sampled", p)
    return hasher.hexdigest()


def add(hasher, name, tensor):
    value = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    hasher.update(value.numpy().tobytes())


def cases():
    """Every (name, variant, fused) that has a hash, by the key under which it is kept."""
    eager = {f"{n}/{v}/eager": (n, v, False) for n in SAMPLERS for v in VARIANTS}
    compiled = {f"{n}/{v}/compiled": (n, v, True) for n in SAMPLERS for v in COMPILED}
    return {**eager, **compiled}


def main(file, *kinds):
    torch.set_num_threads(1)
    hashes = {}
    for key, case in cases().items():
        if case[2] and "eager" in kinds:
            continue
        hashes[key] = run(*case)
        print(key, hashes[key], flush=True)
    text = json.dumps({"environment": environment(), "hashes": hashes}, indent=1)
    Path(file).write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
