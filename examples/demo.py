"""`make demo`: one network, an ensemble and Entropy-MCMC on digits with wrong labels.

The digits are scikit-learn's. One label in five is drawn at random, in training and test data
alike, as where people annotate in a hurry: a single network learns the wrong labels by heart, an
average over networks does so less. Every method gets the same number of gradients, the defaults of
`emcmc sample`, and three seeds. One experiment: table, picture and page show the same runs.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from entropy_mcmc import data, metrics, sample
from entropy_mcmc.report.command import write_report

WRONG = 0.2  # part of the labels that is drawn at random
ROWS = 1000  # for training; the other 797 digits are for the test
SCORES = {"accuracy": "accuracy ↑", "nll": "NLL ↓", "ece": "ECE ↓"}
METHODS = {
    "sgd": "SGD, one network",
    "ensemble": "ensemble of 4",
    "emcmc": "Entropy-MCMC, 1 chain",
    "emcmc-4": "Entropy-MCMC, 4 chains",
}
OURS, SINGLE = "emcmc-4", "sgd"
MARKS = ("<!-- demo: python examples/demo.py --readme README.md -->", "<!-- end of demo -->")
Result = dict[str, Any]


def write_data(file: Path) -> None:
    """All digits, a fifth of them with a random label, as an .npz that any run can read."""
    parts = [data.load("digits", split=split) for split in ("train", "test")]
    images = torch.cat([part.inputs for part in parts]).numpy()
    true = torch.cat([part.targets for part in parts]).numpy()
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(len(true)) < WRONG, rng.integers(0, 10, len(true)), true)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        file,
        x_train=images[:ROWS],
        y_train=labels[:ROWS],
        x_test=images[ROWS:],
        y_test=labels[ROWS:],
        true_test=true[ROWS:],  # for the picture alone
    )


def run(method: str, file: Path, folder: Path, epochs: int, seed: int) -> Result:
    """Sample with the defaults; four networks or chains share the gradients."""
    name, _, chains = method.partition("-")
    shared: Result = {"epochs": epochs}
    if chains or name == "ensemble":
        shared = {"epochs": max(1, epochs // 4), "chains": 4}
    options: Result = {"run_dir": folder, "seed": seed, "fused": "no", **shared}
    posterior = sample("mlp", str(file), method=name, **options)
    test = data.load(str(file), split="test")
    probs = posterior.predict_proba(test.normalise(test.inputs))
    scores = metrics.summary(probs, test.targets)
    posterior.close()
    return {"probs": np.asarray(probs), "networks": len(posterior), **scores}


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and its standard error over seeds (NaN for one)."""
    many = len(values) > 1
    error = statistics.stdev(values) / math.sqrt(len(values)) if many else math.nan
    return statistics.mean(values), error


def table(results: dict[str, list[Result]]) -> str:
    """Scores of each method, then what four chains gain or lose against each, paired by seed."""
    lines = [f"{'':30}{'networks':>9}" + "".join(f"{head:>20}" for head in SCORES.values())]
    for method, runs in results.items():
        cells = [mean_and_error([one[score] for one in runs]) for score in SCORES]
        shown = "".join(f"{f'{mean:.4f} ± {error:.4f}':>20}" for mean, error in cells)
        lines.append(f"{METHODS[method]:30}{runs[0]['networks']:>9}{shown}")
    lines.append("")
    for rival in (method for method in results if method != OURS):
        pairs = list(zip(results[OURS], results[rival], strict=True))
        cells = [mean_and_error([ours[s] - theirs[s] for ours, theirs in pairs]) for s in SCORES]
        shown = "".join(f"{f'{mean:+.4f} ± {error:.4f}':>20}" for mean, error in cells)
        lines.append(f"{f'4 chains − {METHODS[rival]}':39}{shown}")
    return "\n".join(lines)


def markdown(results: dict[str, list[Result]], epochs: int) -> str:
    """The same as a table for the README."""
    rows = [f"| | networks | {' | '.join(SCORES.values())} |", "|---" * (len(SCORES) + 2) + "|"]
    for line in table(results).splitlines()[1:]:
        if line:
            name, count, cells = line[:30].strip(), line[30:39].strip(), line[39:]
            name, count = (line[:39].strip(), "") if "−" in line else (name, count)
            rows.append(f"| {name} | {count} | {' | '.join(re.split(r' {2,}', cells.strip()))} |")
    seeds = len(results[OURS])
    note = f"{ROWS} training rows, {epochs} passes of gradients each, {seeds} seeds; ± is the"
    return "\n".join([*rows, "", f"{note} standard error over seeds, differences are paired."])


def place(text: str, path: Path) -> None:
    """Put a text between the marks of a page."""
    head, rest = path.read_text(encoding="utf-8").split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    path.write_text(f"{head}{MARKS[0]}\n{text}\n{MARKS[1]}{tail}", encoding="utf-8")


def draw(results: dict[str, list[Result]], file: Path, path: Path) -> None:
    """How far confidence can be trusted, and where one network is surest of a wrong answer."""
    from matplotlib.figure import Figure

    test = data.load(str(file), split="test")
    labels = test.targets.numpy()
    figure = Figure(figsize=(12.5, 7.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.2, 1))
    top.suptitle("How often is a prediction right that is made with this confidence? (all seeds)")
    for axes, (method, runs) in zip(
        top.subplots(1, len(results), sharey=True), results.items(), strict=True
    ):
        probs = np.concatenate([one["probs"] for one in runs])
        right = probs.argmax(1) == np.tile(labels, len(runs))
        _reliability(axes, probs.max(1), right)
        ece = mean_and_error([one["ece"] for one in runs])[0]
        axes.set_title(f"{METHODS[method]}: ECE {ece:.3f}", fontsize=10)
    figure.axes[0].set_ylabel("part that is right")
    one, many = results[SINGLE][0]["probs"], results[OURS][0]["probs"]
    with np.load(file) as arrays:
        clean = labels == arrays["true_test"]
    wrong = np.flatnonzero(clean & (one.argmax(1) != labels))
    rows = wrong[np.argsort(-one[wrong].max(1))][:8]
    bottom.suptitle(
        "Rightly labelled digits on which one SGD network is surest, and wrong (seed 0)"
    )
    grid = bottom.subplots(2, 8, height_ratios=(1, 1))
    for column, row in enumerate(rows):
        grid[0, column].imshow(test.inputs[row, 0].numpy(), cmap="gray_r")
        grid[0, column].set_title(f"a {labels[row]}", fontsize=9)
        grid[0, column].axis("off")
        bars = grid[1, column]
        bars.bar(np.arange(10) - 0.2, one[row], 0.4, color="#8a8a8a", label="SGD")
        bars.bar(
            np.arange(10) + 0.2, many[row], 0.4, color="#3f8f5a", label="Entropy-MCMC, 4 chains"
        )
        bars.set_ylim(0, 1)
        bars.set_xticks(range(10))
        bars.tick_params(labelsize=7)
        if column:
            bars.set_yticks([])
    grid[1, 0].set_ylabel("probability")
    bottom.legend(*grid[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)


def _reliability(axes: Any, confidence: np.ndarray, right: np.ndarray) -> None:
    """Confidence in ten bins against the part that is right; small points have few rows."""
    place = np.minimum((confidence * 10).astype(int), 9)
    bins = [b for b in range(10) if (place == b).any()]
    x = [confidence[place == b].mean() for b in bins]
    y = [right[place == b].mean() for b in bins]
    share = np.array([(place == b).mean() for b in bins])
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1)
    axes.plot(x, y, color="#3b6fb6", linewidth=1)
    axes.scatter(x, y, 10 + 300 * share, color="#3b6fb6")
    axes.set_xlabel("confidence")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


def main(argv: list[str] | None = None) -> dict[str, list[Result]]:
    """Run every method with every seed, then show the table, the picture and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=80, help="passes of gradients of each run")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method")
    parser.add_argument("--folder", type=Path, default=Path("runs/demo"), help="made anew")
    parser.add_argument("--readme", type=Path, help="page to put the table into, between marks")
    options = parser.parse_args(argv)
    start = time.perf_counter()
    shutil.rmtree(options.folder, ignore_errors=True)
    file = options.folder / "wrong-labels.npz"
    write_data(file)
    print(
        f"digits, {WRONG:.0%} of the labels drawn at random: {ROWS} to train, 797 to test",
        flush=True,
    )
    results: dict[str, list[Result]] = {method: [] for method in METHODS}
    folders = []
    for method, label in METHODS.items():
        for seed in range(options.seeds):
            folders.append(options.folder / f"{method}-{seed}")
            print(f"  {label}, seed {seed}", flush=True)
            results[method].append(run(method, file, folders[-1], options.epochs, seed))
    print("\n" + table(results))
    if options.readme:
        place(markdown(results, options.epochs), options.readme)
    draw(results, file, options.folder / "demo.png")
    page = write_report(folders, output=options.folder / "report.html")
    print(
        f"\nMean ± standard error over {options.seeds} seeds on the same data; every method has "
        f"{options.epochs} passes of gradients; {time.perf_counter() - start:.0f} s.\n"
        f"Picture: {(options.folder / 'demo.png').resolve()}\nPage:    {page.resolve()}"
    )
    return results


if __name__ == "__main__":
    main()
