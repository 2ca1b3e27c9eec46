"""Reference draws of chains and estimators: the cases, and the script that records them.

`python tests/golden_chains.py` writes `golden/chains.json` anew. Do so only for a change that is
meant to change the chains, and say why in the commit: the hashes pin every bit of every draw.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_iris

from entropy_mcmc import chains
from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor

FILE = Path(__file__).parent / "golden" / "chains.json"

METHODS = {
    "sgld": {"sampler": "sgld"},
    "sgld-cold": {"sampler": "sgld", "temperature": 0.0},
    "sghmc": {"sampler": "sghmc", "momentum": 0.7},
    "sghmc-default": {"sampler": "sghmc"},
    "euler": {"eta": 0.5},
    "euler-cold": {"eta": 0.5, "temperature": 0.0},
    "euler-momentum": {"eta": 0.5, "momentum": 0.6},
    "euler-guide-decay": {"eta": 0.5, "momentum": 0.6, "guide_weight_decay": 0.02},
    "exact": {"eta": 0.5, "guide_update": "exact"},
    "gibbs": {"eta": 0.5, "guide_update": "gibbs"},
}
COMMON = {"lr": 0.3, "temperature": 0.5, "weight_decay": 0.01, "chains": 3, "seed": 8}


def bowl(theta):
    return theta["a"].square().sum() / 2 + (theta["b"] - theta["a"][0]).square().sum()


def logistic(theta, x, y):
    return F.binary_cross_entropy_with_logits(x @ theta, y)


def rows():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(4))
    return x, (x.sum(1) > 0).float()


def free(**settings):
    """No data: an energy of two named tensors."""
    start = {"a": torch.ones(2), "b": torch.zeros(2, 2)}
    return chains.run(bowl, start, **{**COMMON, "num_data": 2, "steps": 37, **settings})


def full(**settings):
    """A module on all rows of its data."""
    x, y = rows()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    settings = {**COMMON, "num_data": 40, "steps": 19, "thin": 3, **settings}
    return chains.run(net, data=(x, y.long()), loss=F.cross_entropy, **settings)


def batches(**settings):
    """Mini-batches of rows, starts that differ."""
    x, y = rows()
    start = torch.randn(3, 3, generator=torch.Generator().manual_seed(5))
    settings = {**COMMON, "num_data": 40, "steps": 37, "burn_in": 5, "chains": None, **settings}
    return chains.run(logistic, start, data=(x, y), batch_size=8, **settings)


PROBLEMS = {"free": free, "full": full, "batches": batches}
COMPILED = ("sgld", "sghmc", "euler", "euler-momentum", "exact", "gibbs")


def chain_cases():
    """Names and thunks of the eager runs, each giving named arrays."""
    return {
        f"{problem}/{method}": lambda run=run, s=settings: draws(run(compile=False, **s))
        for problem, run in PROBLEMS.items()
        for method, settings in METHODS.items()
    }


def compiled_cases():
    """The same of the compiled runs; each compiles for several seconds."""
    pairs = [("batches", m) for m in COMPILED] + [("free", "euler")]
    return {
        f"{problem}/{method}/compiled": lambda p=problem, m=method: draws(
            PROBLEMS[p](compile=True, **METHODS[m])
        )
        for problem, method in pairs
    }


def draws(run):
    """The arrays of some chains, by name."""
    trees = {"theta": run.theta, "guide": run.guide}
    named = {k: v if isinstance(v, dict) else {"": v} for k, v in trees.items() if v is not None}
    return {f"{k}.{name}": v.numpy() for k, tree in named.items() for name, v in tree.items()}


QUICK = {"n_steps": 60, "n_samples": 4, "n_chains": 2, "random_state": 0, "lr": 1.0}
QUICK |= {"momentum": 0.9}
CLASSIFIERS = {
    "auto": {},
    "fixed": {"prior_variance": 2.0, "hidden_layer_sizes": (7,), "activation": "tanh"},
    "batches": {"batch_size": 40, "roles": "both", "prior_variance": 10.0},
    "no-momentum": {"momentum": 0.0, "prior_variance": 2.0, "hidden_layer_sizes": (7, 5)},
}
REGRESSORS = {
    "auto": {},
    "fixed": {"prior_variance": 2.0, "hidden_layer_sizes": (7,), "activation": "silu"},
    "batches": {"batch_size": 30, "roles": "guide"},
    "restarts": {"lr": 20.0},
    "cold": {"temperature": 0.0},
}


def wave(count=120):
    made = np.random.default_rng(0)
    x = made.uniform(-2, 2, (count, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * made.standard_normal(count)


def fit_cases():
    """Names and thunks of the fits, each giving named arrays."""
    made = {
        f"classifier/{name}": lambda s=settings: fitted(EntropyMCMCClassifier, s)
        for name, settings in CLASSIFIERS.items()
    }
    return made | {
        f"regressor/{name}": lambda s=settings: fitted(EntropyMCMCRegressor, s)
        for name, settings in REGRESSORS.items()
    }


def fitted(kind, settings):
    """What a fit learns and predicts, by name."""
    x, y = load_iris(return_X_y=True) if kind is EntropyMCMCClassifier else wave()
    model = kind(**QUICK | settings).fit(x, y)
    arrays = {"predictions": model.sample_predictions(x[::10]), "heats": model.heats_}
    arrays["chosen"] = np.array([model.prior_variance_, model.lr_, *model.hidden_layer_sizes_])
    return arrays | {"weights": model.weights_}


def digest(arrays):
    """One hash of the exact bytes of named arrays, of their shapes and types."""
    total = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        total.update(f"{name} {value.dtype} {value.shape}".encode())
        total.update(np.ascontiguousarray(value).tobytes())
    return total.hexdigest()


def few_numbers(arrays):
    """The last numbers of each array: close on every machine, where hashes need not be equal."""
    return {name: np.ravel(v)[-6:].tolist() for name, v in sorted(arrays.items())}


def machine():
    """What the bits of a draw depend on: torch, its kernels, the processor that BLAS looks at."""
    info = Path("/proc/cpuinfo")
    wanted = ("vendor_id", "cpu family", "model")
    lines = info.read_text().splitlines() if info.exists() else []
    pairs = [tuple(part.strip() for part in line.split(":", 1)) for line in lines if ":" in line]
    processor = {key: value for key, value in pairs if key in wanted}
    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "capability": capability, "processor": processor}


def record():
    """Every case, in one thread, for the file."""
    torch.set_num_threads(1)
    recorded = {
        name: case() for name, case in {**chain_cases(), **compiled_cases(), **fit_cases()}.items()
    }
    return {
        "machine": machine(),
        "machine of fits": machine(),
        "hashes": {name: digest(arrays) for name, arrays in recorded.items()},
        "numbers": {name: few_numbers(arrays) for name, arrays in recorded.items()},
    }


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(record(), indent=1) + "\n")
    sys.stdout.write(f"wrote {FILE}\n")
