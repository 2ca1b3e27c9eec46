"""Break the samplers on purpose, one way at a time, and see that a test notices.

Run as a script: `python tests/mutations.py [NAME …]`. It copies the package, applies one edit, runs
the tests of the laws and equations against the copy, and demands that they fail; with no edit they
must pass. `make test` runs it through tests/test_mutations.py.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = "samplers/entropy_mcmc.py"

# name: (file, text in the source, its wrong replacement)
MUTANTS = {
    "missing sqrt 2": ("units.py", "math.sqrt(2.0 * rate", "math.sqrt(rate"),
    "sequential update": (
        RULES,
        "    theta = v.theta - c.lr * grad - c.decay * v.theta - pull\n",
        "    theta = v.theta - c.lr * grad - c.decay * v.theta - pull\n"
        "    pull = c.coupling * (theta - v.guide)\n",
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
        "samplers/base.py",
        "if param.dtype != torch.bfloat16:\n            return param",
        "if True:\n            return param",
    ),
    "noise of the last step again": (
        "samplers/base.py",
        'step_schedule(group["seed"], group["step"]',
        'step_schedule(group["seed"], 0',
    ),
    "parameters share noise": ("samplers/base.py", "slot(index[p], p)", "slot(0, p)"),
}
TESTS = ["tests/samplers/test_equations.py", "tests/samplers/test_laws.py"]
SELECTION = "not acceptance_c and not acceptance_d and not temperature_zero"


def survives(name: str | None) -> bool:
    """Whether the tests pass on a copy of the package with the mutant `name` (None: no edit)."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "entropy_mcmc"
        shutil.copytree(
            ROOT / "src/entropy_mcmc", copy, ignore=shutil.ignore_patterns("__pycache__")
        )
        if name is not None:
            file, right, wrong = MUTANTS[name]
            source = (copy / file).read_text()
            assert source.count(right) == 1, f"{name}: the text to break is not there once"
            (copy / file).write_text(source.replace(right, wrong))
        command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *TESTS]
        env = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
        run = subprocess.run([*command, "-k", SELECTION], cwd=ROOT, env=env, capture_output=True)
        assert run.returncode in (0, 1), run.stdout.decode()[-2000:]
        return run.returncode == 0


def main(names: list[str]) -> int:
    """Print one line per mutant; return the number of survivors, or 1 if the clean code fails."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        clean = pool.submit(survives, None)
        results = dict(zip(names, pool.map(survives, names), strict=True))
    for name, alive in results.items():
        print(f"{'SURVIVED' if alive else 'caught':9} {name}")
    if not clean.result():
        print("the tests fail without any mutant")
        return 1
    return sum(results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(MUTANTS)))
