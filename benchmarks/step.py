"""One sampler step on the shapes of a CIFAR ResNet-18, against SGD, the naive form and a peer.

    python benchmarks/step.py [--part step | fixed | mlp | resnet] [--repeats 15] [--cpu-time]

Prints JSON. `fixed` is what a step of many small tensors costs; `mlp` and `resnet` are training
iterations (ResNet-18 at batch 128 takes minutes).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import Any

import timing
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_mcmc import models
from entropy_mcmc.samplers import SGLD, EntropyMCMC, base, entropy_mcmc
from entropy_mcmc.samplers.kernel import compiled, layout
from entropy_mcmc.samplers.kernel.layout import Known, Layout
from entropy_mcmc.samplers.kernel.tensor_buckets import Slot
from entropy_mcmc.samplers.rule import Update

N, LR, ETA, T = 50_000, 0.1, 4e-4, 1e-4
SETTINGS = {"lr": LR, "num_data": N, "temperature": T, "seed": 0}


def parameters() -> list[Tensor]:
    """62 tensors, 11,173,962 numbers, with gradients."""
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(p.shape)) for p in models.resnet18().parameters()]
    for p in params:
        p.grad = torch.randn_like(p)
    return list(params)


def naive() -> Callable[[], None]:
    """Coupling and noise through the loss: extra terms, backward, SGD on both variables."""
    thetas = parameters()
    guides = [nn.Parameter(p.detach().clone()) for p in thetas]
    optimizer = torch.optim.SGD([*thetas, *guides], lr=LR)
    scale = math.sqrt(2 * T / (LR * N))

    def step() -> None:
        extra = torch.zeros(())
        for theta, guide in zip(thetas, guides, strict=True):
            extra = extra + (theta - guide).square().sum() / (2 * ETA * N)
            extra = extra + scale * (theta * torch.randn_like(theta)).sum()
            extra = extra + scale * (guide * torch.randn_like(guide)).sum()
        extra.backward()
        optimizer.step()
        for guide in guides:
            guide.grad = None  # θ's gradient stays: the model's backward would refill it

    return step


def floor() -> Callable[[], None]:
    """The same reads and writes without noise, as one compiled call on flat tensors."""
    size = sum(p.numel() for p in parameters())
    values = [torch.randn(size) for _ in range(3)]
    coefficients = entropy_mcmc.Euler(LR, 0.0, 0.1, 0.0, 0.0)
    update = Update(entropy_mcmc.euler, entropy_mcmc.Coupled, coefficients, normals=0)
    slots = (Slot(0, 0, size),)

    def step() -> None:
        compiled.run(update, values, None, slots)

    return torch.no_grad()(step)


def posteriors_sgld() -> dict[str, Callable[[], None]]:
    """`posteriors`' SGLD with a linear log posterior, and that gradient alone, to subtract."""
    from posteriors.sgmcmc import sgld

    grads = {str(i): p.grad for i, p in enumerate(parameters())}
    params = {str(i): p.detach().clone() for i, p in enumerate(parameters())}

    def log_posterior(values: dict[str, Tensor], batch: Any) -> tuple[Tensor, Tensor]:
        total = sum((values[k].flatten() @ g.flatten() for k, g in grads.items()), torch.zeros(()))
        return total, torch.zeros(())

    transform = sgld.build(log_posterior, lr=1e-9, temperature=T)
    state = transform.init(params)
    gradient = torch.func.grad_and_value(log_posterior, has_aux=True)

    def update() -> None:
        transform.update(state, None, inplace=True)

    return {"posteriors update": update, "posteriors gradient": lambda: gradient(params, None)}


def steps(repeats: int, cpu_time: bool) -> dict[str, Any]:
    actions: dict[str, Callable[[], object]] = {
        "emcmc fused": EntropyMCMC(parameters(), eta=ETA, fused=True, **SETTINGS).step,
        "sgld fused": SGLD(parameters(), fused=True, **SETTINGS).step,
        "floor": floor(),
        "sgd": torch.optim.SGD(parameters(), lr=1e-9, fused=True).step,
        "emcmc eager": EntropyMCMC(parameters(), eta=ETA, fused=False, **SETTINGS).step,
        "naive": naive(),
    }
    try:
        actions |= posteriors_sgld()
    except ImportError:
        print("posteriors is not installed: its row is left out; pip install entropy-mcmc[bench]")
    times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
    emcmc = times["emcmc fused"]
    rows = [
        timing.ratio("fused EMCMC step / through the loss", emcmc, times["naive"], "≤ 0.14"),
        timing.ratio("eager EMCMC step / through the loss", times["emcmc eager"], times["naive"],
                     "–"),
        timing.ratio("fused EMCMC step / memory floor", emcmc, times["floor"], "≤ 6"),
        timing.ratio("fused EMCMC step / fused SGLD step", emcmc, times["sgld fused"], "≤ 1.3"),
    ]  # fmt: skip
    if "posteriors update" in times:
        pairs = zip(times["posteriors update"], times["posteriors gradient"], strict=True)
        rest = [update - gradient for update, gradient in pairs]
        rows.append(
            timing.ratio("fused EMCMC step / posteriors SGLD update", emcmc, rest, "≤ 0.45")
        )
    return {"rows": rows, "milliseconds": timing.milliseconds(times)}


STEP = {  # what a compiled step consists of; the rest is calls
    "gradients in": (Known, "take_gradients"),
    "finite check": (Layout, "gradients_are_finite"),
    "θ in": (Layout, "_theta"),
    "θ_a": (Layout, "_home"),
    "states": (EntropyMCMC, "_variables"),
    "keys": (base, "schedule_of"),
    "kernel": (layout, "run_bucket"),
    "θ out": (Layout, "_write_back"),
}


def small_parameters(size: int) -> list[Tensor]:
    """62 tensors of `size` numbers, with gradients."""
    params = [nn.Parameter(torch.randn(size)) for _ in range(62)]
    for p in params:
        p.grad = torch.randn_like(p)
    return list(params)


def quiet(sampler: EntropyMCMC) -> EntropyMCMC:
    """The sampler with its noise off."""
    for group in sampler.param_groups:
        group["noise"] = False
    return sampler


def fixed(repeats: int, cpu_time: bool) -> dict[str, Any]:
    """A step of 62 small tensors: of 100,000 numbers in all, and of so few that calls are all."""
    actions: dict[str, Callable[[], object]] = {}
    for size in (1612, 10):

        def make(fused: bool, size: int = size) -> EntropyMCMC:
            return EntropyMCMC(small_parameters(size), eta=ETA, fused=fused, **SETTINGS)

        actions |= {
            f"sgd {size}": torch.optim.SGD(small_parameters(size), lr=1e-9, fused=True).step,
            f"noisy {size}": make(True).step,
            f"quiet {size}": quiet(make(True)).step,
            f"quiet eager {size}": quiet(make(False)).step,
        }
    copies = [small_parameters(10), small_parameters(10)]
    with torch.no_grad():
        views = [p.detach().clone() for p in copies[1]]
        actions["copies"] = lambda: [torch._foreach_copy_(views, copies[0]) for _ in range(3)]
        times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
    loops = {  # nothing between two steps, so that all is in the caches
        k: timing.interleaved({k: actions[k]}, repeats, cpu_time=cpu_time)[k]
        for k in ("quiet 10", "sgd 10")
    }
    profiles = {
        "SGD, 62 tensors of 10": timing.profile(actions["sgd 10"], {}, repeats),
        "EMCMC, noise off": timing.profile(actions["quiet 10"], STEP, repeats),
        "EMCMC": timing.profile(actions["noisy 10"], STEP, repeats),
    }
    rows = [
        timing.ratio("62 tensors, 100,000 parameters: EMCMC step, noise on / SGD step",
                     times["noisy 1612"], times["sgd 1612"], "–"),
        timing.ratio("the same, noise off", times["quiet 1612"], times["sgd 1612"], "–"),
        timing.ratio("62 tensors of 10: EMCMC step, noise off / SGD step (fixed cost)",
                     times["quiet 10"], times["sgd 10"], "≤ 1.5"),
        timing.ratio("the same in a loop of nothing but steps", loops["quiet 10"],
                     loops["sgd 10"], "–"),
        timing.ratio("the three copies of 62 tensors alone / SGD step (the limit)",
                     times["copies"], times["sgd 10"], "–"),
    ]  # fmt: skip
    shown = timing.milliseconds(times)
    return {"rows": rows, "milliseconds": shown, "profiles": profiles, "profile_of": "step"}


class Iteration:
    """A training iteration: `gradient`, which all optimizers need, and a step."""

    def __init__(self, model: nn.Module, make: Callable[..., Any], x: Tensor, y: Tensor) -> None:
        self._model, self._x, self._y = model, x, y
        self.optimizer = make(model.parameters())

    def gradient(self) -> None:
        """Forward and backward."""
        F.cross_entropy(self._model(self._x), self._y).backward()

    def __call__(self) -> None:
        """One iteration."""
        self.optimizer.zero_grad()
        self.gradient()
        self.optimizer.step()


def sgd(params: Any) -> Any:
    return torch.optim.SGD(params, lr=1e-3, fused=True)


def emcmc(params: Any) -> Any:
    return EntropyMCMC(params, lr=1e-3, num_data=N, eta=ETA, temperature=T, seed=0, fused=True)


def mlp(repeats: int, cpu_time: bool) -> dict[str, Any]:
    """Training iteration of a 784-256-256-10 network at batch 64."""
    x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))
    net = lambda: models.MLP(784, 10, hidden=(256, 256))  # noqa: E731
    actions = {
        "emcmc": Iteration(net(), emcmc, x, y),
        "quiet": Iteration(net(), lambda params: quiet(emcmc(params)), x, y),
        "sgd": Iteration(net(), sgd, x, y),
    }
    times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
    gradient = {"forward and backward": (Iteration, "gradient")}
    profiles = {
        name: timing.profile(run, gradient | ({} if name == "sgd" else STEP), repeats)
        for name, run in actions.items()
    }
    rows = [
        timing.ratio("MLP iteration, EMCMC / SGD", times["emcmc"], times["sgd"], "≤ 1.4"),
        timing.ratio("MLP iteration, EMCMC with its noise off / SGD", times["quiet"],
                     times["sgd"], "≤ 1.1"),
    ]  # fmt: skip
    for name, what in (("emcmc", "with noise"), ("quiet", "noise off")):
        alone = profiles["sgd"]["forward and backward"] + profiles[name]["kernel"]
        title = f"forward, backward and the kernel alone, {what} / SGD's iteration (the limit)"
        whole = profiles["sgd"]["whole"]
        rows.append({"what": title, "ratio": alone / whole, "quartiles": None, "target": "–"})
    shown = timing.milliseconds(times)
    return {"rows": rows, "milliseconds": shown, "profiles": profiles, "profile_of": "iteration"}


def resnet(repeats: int, cpu_time: bool) -> dict[str, Any]:
    """1 + (EMCMC step − SGD step) / iteration, for ResNet-18 at batch 128."""
    x, y = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))
    actions = {
        "iteration": Iteration(models.resnet18(), sgd, x, y),
        "emcmc": EntropyMCMC(parameters(), eta=ETA, fused=True, **SETTINGS).step,
        "sgd": torch.optim.SGD(parameters(), lr=1e-9, fused=True).step,
    }
    times = timing.interleaved(actions, repeats, cpu_time=cpu_time)
    with_step = [i + e - s for i, e, s in zip(*times.values(), strict=True)]
    row = timing.ratio("ResNet-18 iteration, 1 + (EMCMC − SGD)/iteration", with_step,
                       times["iteration"], "≤ 1.01")  # fmt: skip
    return {"rows": [row], "milliseconds": timing.milliseconds(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--part", choices=("step", "fixed", "mlp", "resnet"), default="step")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, CPU time, not wall")
    given = parser.parse_args()
    timing.use_threads(None, given.cpu_time)
    parts = {
        "step": lambda: steps(given.repeats, given.cpu_time),
        "fixed": lambda: fixed(20 * given.repeats, given.cpu_time),
        "mlp": lambda: mlp(20 * given.repeats, given.cpu_time),
        "resnet": lambda: resnet(max(2, given.repeats // 2), given.cpu_time),
    }
    measured = parts[given.part]()
    out = {"threads": torch.get_num_threads(), "cpu_time": given.cpu_time, **measured}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
