"""Default `emcmc sample` on digits against its own SGD baseline, seed by seed.

    python benchmarks/default_run.py            # ten seeds, then three with four chains

Each run is the command as a user types it, with another seed. Paired differences with Student's
interval; "not worse" is the rule of docs/comparison.md. Finished runs in --runs are kept, so that
the same command goes on where it stopped. Results: results/benchmarks/default-run.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from entropy_mcmc.diagnostics import effective_networks
from entropy_mcmc.run.loaded_run import load_run

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "benchmarks" / "default-run.json"
# Of the difference EMCMC − SGD: the margin of "not worse", and the sign that is better.
MARGINS = {"nll": (0.01, -1), "ece": (0.005, -1), "auroc": (0.01, 1)}


def made(folder: Path, *options: str) -> Path:
    """The folder of a finished run of the command with these options."""
    if not (folder / "diagnostics.json").exists():
        command = [sys.executable, "-m", "entropy_mcmc", "sample", "--run_dir", str(folder)]
        subprocess.run([*command, *options, "--output.progress", "false"], check=True)
    return folder


def scores(folder: Path) -> dict[str, dict[str, float]]:
    """Scores by method, from the journal of a run."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if event["kind"] == "evaluate"]
    return {
        who: {name: e[name] for e in events if e["who"] == who for name in MARGINS if name in e}
        for who in ("emcmc", "sgd")
    }


def compared(pairs: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, object]]:
    """EMCMC − SGD over seeds: mean, 95 % interval, and whether it is not worse."""
    table: dict[str, dict[str, object]] = {}
    for name, (margin, better) in MARGINS.items():
        each = {who: [pair[who][name] for pair in pairs] for who in ("emcmc", "sgd")}
        gaps = np.subtract(each["emcmc"], each["sgd"])
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        two, one = (stats.t.ppf(q, len(gaps) - 1) for q in (0.975, 0.95))
        worst = -better * gaps.mean() + one * error
        table[name] = {
            **{who: float(np.mean(values)) for who, values in each.items()},
            "difference": float(gaps.mean()),
            "interval": [float(gaps.mean() - two * error), float(gaps.mean() + two * error)],
            "not worse": bool(worst < margin),
        }
    return table


def severity(folder: Path) -> str:
    """The worst mark of the run's diagnosis."""
    return str(json.loads((folder / "diagnostics.json").read_text())["severity"])


def predictions(folder: Path) -> tuple[np.ndarray, list[int]]:
    """Probabilities of each sample on the test set, and the samples' chains."""
    run = load_run(folder)
    test = run.problem.train.normalise(run.problem.test.inputs)
    values = run.posterior.sample_predictions(test).numpy()
    return values, [sample.chain for sample in run.posterior.samples]


def main() -> None:
    """Run, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--chain-seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/default"))
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    single = [made(options.runs / f"{seed}", "--seed", str(seed)) for seed in range(options.seeds)]
    four = [
        made(
            options.runs / f"{seed}-four",
            *("--seed", str(seed), "--chains", "4", "--output.baseline", "none"),
        )
        for seed in range(options.chain_seeds)
    ]
    # One chain has nothing to compare with: chains of other seeds, with the same data, stand in.
    stacks = [predictions(folder)[0] for folder in single]
    labels = [seed for seed, stack in enumerate(stacks) for _ in stack]
    across = effective_networks(np.concatenate(stacks), labels)
    size = len(stacks[0])
    several = [effective_networks(*predictions(folder)) for folder in four]
    content = {
        "compared": compared([scores(folder) for folder in single]),
        "severity": [severity(folder) for folder in [*single, *four]],
        "one chain": {
            "samples": size,
            "networks": size / (1 + (size - 1) * across.correlation),
        },
        "four chains": [{"samples": k.samples, "networks": k.value} for k in several],
    }
    options.result.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
