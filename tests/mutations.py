"""Break the samplers on purpose, one way at a time, and see that a test notices.

Run as a script: `python tests/mutations.py [NAME …]`. It copies the package, applies one edit, runs
the tests of distributions and equations against the copy, and demands that they fail; with no edit
they must pass. tests/test_mutations.py runs it: some in `make test`, all in `make soak`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = "samplers/entropy_mcmc.py"

COLLAPSED = ["tests/samplers/test_integrators.py", "-k", "of_a_collapsed or independent"]
RESTS = ["tests/samplers/test_rests.py", "-k", "equations"]
REPLICAS = ["tests/samplers/test_replicas.py", "-k", "equations or noise_of_their_own"]
FALLING = ["tests/samplers/test_replicas.py", "-k", "falling_lr"]
LATE = ["tests/samplers/test_late_coupling.py", "-k", "replicas"]
CLOSED = ["tests/samplers/test_replicas.py", "-k", "lyapunov or distribution_of_replicas"]
STACKED = ["tests/chains/test_replicas.py", "-k", "distribution_of_stacked and euler"]
PSGLD = ["tests/samplers/test_psgld.py", "tests/samplers/test_equations.py", "-k", "psgld"]
# name: (file, text in the source, its wrong replacement[, the tests that must notice])
MUTANTS = {
    "missing sqrt 2": ("units.py", "math.sqrt(2.0 * rate", "math.sqrt(rate"),
    "sequential update": (
        RULES,
        "    guide = v.guide + pull - c.guide_decay",
        "    guide = v.guide + c.coupling * (theta - v.guide) - c.guide_decay",
    ),
    "guide kept over burn-in": (
        "samplers/coupled.py",
        '            state.pop("guide")\n',
        '            state["guide"]\n',
        ["tests/samplers/test_late_coupling.py"],
    ),
    "decay on the guide": (
        RULES,
        "guide = v.guide + pull - c.guide_decay",
        "guide = v.guide + pull - c.decay",
    ),
    "shared noise": (
        RULES,
        "guide + c.noise * eps[1]\n    return Coupled(theta, guide)",
        "guide + c.noise * eps[0]\n    return Coupled(theta, guide)",
    ),
    "noise through momentum": (
        "units.py",
        'friction = 1.0 - group.get("momentum", 0.0)',
        "friction = 1.0",
    ),
    "N forgotten in the noise": (
        "units.py",
        "heat * friction / num_data",
        "heat * friction",
    ),
    "N forgotten in the coupling": (
        "units.py",
        "return lr / (eta * num_data)",
        "return lr / eta",
    ),
    "temperature ignored": ("units.py", "rate * heat * friction", "rate * friction"),
    "exact: half the decay rate": (
        RULES,
        "math.exp(-2 * s.alpha / eta)",
        "math.exp(-s.alpha / eta)",
    ),
    "gibbs: guide around the old theta": (
        RULES,
        "    theta = theta + c.noise * eps[0]\n"
        "    return Coupled(theta, theta + c.spread * eps[1])",
        "    return Coupled(theta + c.noise * eps[0], theta + c.spread * eps[1])",
    ),
    "velocity not rescaled": (
        "units.py",
        "momentum * math.sqrt(lr / last_lr)",
        "momentum * 1.0",
    ),
    "bfloat16 without masters": (
        "samplers/kernel/variables.py",
        "if param.dtype != torch.bfloat16:\n            return param",
        "if True:\n            return param",
    ),
    "noise of the last step again": (
        "samplers/kernel/advance.py",
        "return (step if left is None else left, step + 1)",
        "return (0, 1)",
    ),
    "a rest forgotten": (
        "samplers/kernel/advance.py",
        "return (step if left is None else left, step + 1)",
        "return (step, step + 1)",
        RESTS,
    ),
    "parameters share noise": ("samplers/kernel/layout.py", "slot(index[p], p)", "slot(0, p)"),
    "parameters share noise in a nested chain": (
        "samplers/base.py",
        "slot(index[p], p)",
        "slot(0, p)",
    ),
    "lm: the whole noise of one step": (
        "samplers/sgld.py",
        "c.noise * (last[0] + new[0])",
        "c.noise * 2 * new[0]",
    ),
    "joint lm: shared noise": (
        RULES,
        "guide + c.half * (last[1] + new[1])",
        "guide + c.half * (last[0] + new[0])",
    ),
    "baoab: a kick of lr": ("samplers/sghmc.py", "share = 2 / (1 + mu)", "share = 1.0"),
    "joint baoab: both drifts before the friction": (
        RULES,
        "v.theta + 0.5 * velocity, v.guide",
        "v.theta + 1.0 * velocity, v.guide",
    ),
    "collapsed: temperature forgotten": (
        "samplers/coupled.py",
        'math.sqrt(group["eta"] * heat)',
        'math.sqrt(group["eta"])',
        COLLAPSED,
    ),
    "collapsed: the noise of the next step": (
        "samplers/coupled.py",
        "GUIDE_STREAM = 2",
        "GUIDE_STREAM = 0",
        COLLAPSED,
    ),
    "replicas: the guide has the noise of the first replica": (
        "samplers/replicas.py",
        "GUIDE_STREAM = 3",
        "GUIDE_STREAM = 0",
        REPLICAS,
    ),
    "replicas share their noise": (
        "samplers/replicas.py",
        "[slopes], inner=number, left=left)",
        "[slopes], left=left)",
        REPLICAS,
    ),
    "replicas: a guide pulled by their mean": (
        "samplers/replicas.py",
        "slopes = torch._foreach_mul(pulls, -strength / rounds)",
        "slopes = torch._foreach_mul(pulls, -strength / rounds / self.num_replicas)",
        REPLICAS,
    ),
    "replicas: a guide that is decayed": (
        "samplers/replicas.py",
        'slow = {**group, **rates, "weight_decay": 0.0}',
        "slow = {**group, **rates}",
        REPLICAS,
    ),
    "replicas: the guide's velocity rescaled by the lr of the last round": (
        "samplers/replicas.py",
        'last = group["exchange_lr"] or group["last_lr"]',
        'last = group["last_lr"]',
        FALLING,
    ),
    "replicas: later ones are pulled by a guide that has moved": (
        "samplers/replicas.py",
        "if self._ranks is not None or current == self.num_replicas - 1:",
        "if self._ranks is not None or current == 0:",
        REPLICAS,
    ),
    "replicas: at rest after burn-in": (
        "samplers/replicas.py",
        'velocity = self.state[param].pop("velocity", None)',
        'velocity = self.state[param].pop("velocity", None) if False else None',
        LATE,
    ),
    "replicas: velocity is carried at every call of burn-in": (
        "samplers/replicas.py",
        '"last_lr": rate if number else group["last_lr"]',
        '"last_lr": group["last_lr"]',
        LATE,
    ),
    "replicas: kept over burn-in": (
        "samplers/replicas.py",
        "                self._become_one()\n",
        "                pass\n",
        LATE,
    ),
    "stacked replicas: a guide pulled by one of them": (
        "samplers/stacked_replicas.py",
        "pulled = -c.tie * _summed(gap, y)",
        "pulled = -c.tie * gap",
        STACKED,
    ),
    "psgld: never frozen": (
        "samplers/psgld.py",
        'group["smoothing"] if group["step"] < group["freeze_after"] else 1.0',
        'group["smoothing"]',
        PSGLD,
    ),
    "psgld: frozen a step late": (
        "samplers/psgld.py",
        'group["step"] < group["freeze_after"]',
        'group["step"] <= group["freeze_after"]',
        PSGLD,
    ),
    "psgld: V without its root": ("samplers/psgld.py", "square.sqrt()", "square", PSGLD),
    "psgld: noise scaled by G, not by its root": (
        "samplers/psgld.py",
        "scale.sqrt()",
        "scale",
        PSGLD,
    ),
    "psgld: G of the step before": (
        "samplers/psgld.py",
        "c.epsilon + square.sqrt()",
        "c.epsilon + v.square.sqrt()",
        PSGLD,
    ),
    "psgld: decay without G": (
        "samplers/psgld.py",
        "scale * (c.lr * grad + c.decay * v.theta)",
        "scale * c.lr * grad - c.decay * v.theta",
        PSGLD,
    ),
    "replicas: y forgotten in the closed form": (
        "stationary.py",
        "first, off, last = h + c, -math.sqrt(y) * c, y * c",
        "first, off, last = h + c, -math.sqrt(y) * c, c",
        CLOSED,
    ),
}
TESTS = [
    *("tests/samplers/test_equations.py", "tests/samplers/test_distributions.py"),
    *("-k", "not acceptance_c and not acceptance_d and not temperature_zero"),
]
STALE, SURVIVED = "STALE", "SURVIVED"


def stale(name: str, package: Path = ROOT / "src/entropy_mcmc") -> bool:
    """Whether the text that a mutant breaks is not in its file, or not once."""
    file, right, *_ = MUTANTS[name]
    return (package / file).read_text().count(right) != 1


def tests_of(name: str) -> list[str]:
    """The tests that must notice a mutant."""
    own: tuple[list[str], ...] = MUTANTS[name][3:]
    return own[0] if own else TESTS


def failing(tests: list[str], folder: str) -> str | None:
    """The first of the tests that fails with the copy of the package in `folder`."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if run.returncode not in (0, 1):  # no verdict: nothing was collected, or pytest itself failed
        raise RuntimeError(f"{' '.join(command)}\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    if run.returncode == 0:
        return None
    first = re.search(r"^(?:FAILED|ERROR) (?:.*/)?(\S+)", run.stdout, re.MULTILINE)
    return first[1] if first else "a test"


def outcome(tests: list[str], name: str | None = None) -> str:
    """The test that fails with a copy of the package that has the mutant `name` (None: no edit)."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "entropy_mcmc"
        shutil.copytree(
            ROOT / "src/entropy_mcmc", copy, ignore=shutil.ignore_patterns("__pycache__")
        )
        if name is not None:
            if stale(name, copy):
                return STALE
            file, right, wrong, *_ = MUTANTS[name]
            (copy / file).write_text((copy / file).read_text().replace(right, wrong))
        return failing(tests, folder) or SURVIVED


def main(names: list[str]) -> int:
    """Print one line per mutant; return how many were not caught, or 1 if the clean code fails."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sets = [tests_of(name) for name in names]
        clean = [
            pool.submit(outcome, tests) for i, tests in enumerate(sets) if tests not in sets[:i]
        ]
        results = dict(zip(names, pool.map(outcome, sets, names), strict=True))
    for name, result in results.items():
        print(f"{result if result in (STALE, SURVIVED) else 'caught':9} {name:60} {result}")
    wrong = [run.result() for run in clean if run.result() != SURVIVED]
    if wrong:
        print(f"without any mutant: {', '.join(wrong)}")
        return 1
    return sum(result in (STALE, SURVIVED) for result in results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(MUTANTS)))
