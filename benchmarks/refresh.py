"""What batch-norm statistics from fewer batches cost: scores of one posterior after each refresh.

A small CNN with batch norm is sampled once for each seed; then all of its samples are refreshed
with more and more batches and judged on the test set. The last row is a whole pass over the data.

    python benchmarks/refresh.py [--data fashion-mnist] [--rows 6000] [--epochs 12] [--seeds 3]

Writes results/benchmarks/refresh-DATA.json; `--render` writes the tables of docs/batchnorm.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from entropy_mcmc import data as data_sets
from entropy_mcmc import models, sample
from entropy_mcmc.data import Batches, Dataset
from entropy_mcmc.evaluation.scores import prediction_scores
from entropy_mcmc.posterior import Posterior

HERE = Path(__file__).parents[1]
RESULTS, PAGE = HERE / "results" / "benchmarks", HERE / "docs" / "batchnorm.md"
MARKS = ("<!-- table: written by benchmarks/refresh.py --render -->", "<!-- end of table -->")
COUNTS = (1, 2, 4, 8, 16, 32)
SCORES = ("accuracy", "nll", "ece")
BATCH, SAMPLES, TEST_ROWS = 64, 16, 2000


def load(name: str, rows: int | None) -> tuple[Dataset, Dataset]:
    train, test = (data_sets.load(name, split=split) for split in ("train", "test"))
    return some(train, rows), some(test, TEST_ROWS)


def some(data: Dataset, rows: int | None) -> Dataset:
    if rows is None or rows >= len(data):
        return data
    chosen = data_sets.order(0, 0, len(data))[:rows]
    return replace(data, inputs=data.inputs[chosen], targets=data.targets[chosen])


def judged(posterior: Posterior, train: Dataset, test: Dataset) -> dict[str, float]:
    average = posterior.predict_proba(train.normalise(test.inputs), batch_size=500)
    scores = prediction_scores(average, test.targets)
    return {name: float(scores[name]) for name in SCORES}


def one_seed(
    train: Dataset, test: Dataset, epochs: int, seed: int, counts: list[int]
) -> list[dict[str, float]]:
    network = models.build("cnn", norm="bn", **fitting(train))
    with tempfile.TemporaryDirectory() as folder:
        options = {"epochs": epochs, "batch_size": BATCH, "seed": seed, "samples_per_cycle": 2}
        sample(network, train, run_dir=folder, fused="no", **options)
        with Posterior.open(folder, network, append=True) as posterior:
            assert len(posterior) == SAMPLES
            rows = []
            for count in counts:
                batches = [x for x, _ in Batches(train, BATCH, seed=seed).epoch(0)]
                posterior.refresh_batchnorm(batches, force=True, max_batches=count)
                rows.append(judged(posterior, train, test))
    return rows


def fitting(train: Dataset) -> dict[str, Any]:
    shape = train.inputs.shape
    return {"outputs": train.classes, "in_channels": shape[1], "image_size": shape[2]}


def measure(name: str, rows: int | None, epochs: int, seeds: int) -> dict[str, Any]:
    train, test = load(name, rows)
    whole = len(train) // BATCH
    counts = [count for count in COUNTS if count < whole] + [whole]
    made = [one_seed(train, test, epochs, seed, counts) for seed in range(seeds)]
    table = [
        {"batches": count, **{score: [run[i][score] for run in made] for score in SCORES}}
        for i, count in enumerate(counts)
    ]
    return {
        "data": name,
        "train_rows": len(train),
        "test_rows": len(test),
        "epochs": epochs,
        "seeds": seeds,
        "samples": SAMPLES,
        "batch_size": BATCH,
        "torch": str(torch.__version__),
        "table": table,
    }


def table(runs: dict[str, Any]) -> str:
    """Means over seeds, and for all but the whole pass the difference to it with its error."""
    last = runs["table"][-1]
    lines = [
        f"{runs['data']}, {runs['train_rows']:,} training rows, {runs['epochs']} epochs, "
        f"{runs['samples']} samples, batches of {runs['batch_size']}, {runs['seeds']} seeds; "
        "differences to the whole pass ± standard error over seeds:",
        "",
        "| batches for each sample | accuracy % | NLL | ECE % |",
        "|---|---|---|---|",
    ]
    for row in runs["table"]:
        cells = []
        for score, factor, digits in (("accuracy", 100, 2), ("nll", 1, 4), ("ece", 100, 2)):
            values = factor * torch.tensor(row[score], dtype=torch.float64)
            gaps = values - factor * torch.tensor(last[score], dtype=torch.float64)
            error = float(gaps.std() / len(gaps) ** 0.5) if len(gaps) > 1 else float("nan")
            shown = f"{float(values.mean()):.{digits}f}"
            if row is not last:
                shown += f" ({float(gaps.mean()):+.{digits}f} ± {error:.{digits}f})"
            cells.append(shown)
        label = f"{row['batches']}, the whole pass" if row is last else str(row["batches"])
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def render() -> None:
    files = sorted(RESULTS.glob("refresh-*.json"))
    text = "\n\n".join(table(json.loads(file.read_text())) for file in files)
    head, rest = PAGE.read_text().split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    PAGE.write_text(f"{head}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--rows", type=int, help="of the training set; all by default")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--render", action="store_true", help="measure nothing, write the page")
    given = parser.parse_args()
    if not given.render:
        measured = measure(given.data, given.rows, given.epochs, given.seeds)
        RESULTS.mkdir(parents=True, exist_ok=True)
        text = json.dumps(measured, indent=1) + "\n"
        (RESULTS / f"refresh-{given.data}.json").write_text(text)
        print(table(measured))
    render()


if __name__ == "__main__":
    main()
